"""Measures how the last hidden state changes if one group of layers is quantized, on few tokens.

A group is what --bits and --w4a4 decide on together: q, k and v; gate and up; all experts of a layer. For each group two
copies of the hidden states of the first tokens go through the model, one with the weights of that group in NVFP4, one with
its inputs. The copies are on disk between layers. The change of the last hidden state is the fourth power of the mean over
tokens of (|dh| / |h|)^½. With a mean of squares, a few tokens that another expert takes decide the order of groups.
`<module>.sensitivity` is the change divided by the mean output error of the group. `<module>.change`, for merging files, is
the sum of the roots, and the number of tokens. `<module>.input_sensitivity` is the sum, and the number, for the inputs.
"""

import re
from functools import partial
from pathlib import Path

import torch
from torch.nn.functional import linear

import nvfp4

from .._errors import FormatError, IoError
from .collect import GemmMode
from .statistics import change

#: Share of the time of a run that default_tokens() may add.
SHARE = 0.1
#: Smallest and largest number of tokens; largest number of tokens of a window.
LEAST, MOST, WINDOW = 16, 512, 256
#: Number of elements of a weight that are quantized at a time.
ELEMENTS = 1 << 16
#: Usual names of modules with the same input.
SHARED_INPUTS = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"), ("w1", "w3"), ("q_a_proj", "kv_a_proj_with_mqa"))


def shared_input(name):
    """Returns a name that modules with the same input have in common."""
    parent, _, last = name.rpartition(".")
    return next((f"{parent}.{group[0]}" for group in SHARED_INPUTS if last in group), name)


def groups_of(parameters):
    """Returns lists of a layer's parameters that are quantized together."""
    groups = {}
    for name in parameters:
        experts = re.match(r"(.*\bexperts)\b", name)
        groups.setdefault(experts[1] if experts else shared_input(name.removesuffix(".weight")), []).append(name)
    return list(groups.values())


def default_tokens(tokens, groups):
    """Returns the default number of tokens for a text of `tokens` and a model of `groups`. On average half of the
    groups have their two copies in a layer."""
    return min(MOST, max(LEAST, int(SHARE * tokens / max(1, groups))))


def windows_of_few(tokens, context, batch):
    """Returns the number of windows and their length, for about `tokens` tokens and at most a batch."""
    length = min(tokens, context, WINDOW)
    return min(max(1, tokens // length), max(1, batch * context // length)), length


def quantized(part, scope="tensor"):
    """Returns rows of a matrix, quantized to NVFP4 and dequantized."""
    try:
        return nvfp4.quantize(part.contiguous(), "max", scope=scope).dequantize("float32").to(part.dtype)
    except nvfp4.UnsupportedError:  # a package without CUDA: the CPU gives the same bits
        if part.device.type == "cpu":
            raise
        return quantized(part.cpu(), scope).to(part.device)


def rows_of(gemm):
    """Returns the weight of a GEMM as [N, K]."""
    weight = gemm.weight if gemm.function is linear else gemm.weight.mT
    return weight.reshape(-1, gemm.x.shape[-1])


class Perturbed(GemmMode):
    """Quantizes the weights of `group`, a list of module names, when they are multiplied. `errors`: squared errors of
    each input channel, by the first module of each weight."""

    def __init__(self, weights, group):
        super().__init__(weights)
        self.group, self.errors = frozenset(group), {}

    def run_gemm(self, gemm, modules):
        x = gemm.x
        if not modules or modules[0] not in self.group or x.numel() == 0:
            return gemm.run()
        rows = rows_of(gemm)
        errors = torch.zeros(rows.shape[1], dtype=torch.float64, device=rows.device)
        out, step = x.new_empty((*x.shape[:-1], len(rows))), max(1, ELEMENTS // rows.shape[1])
        for begin in range(0, len(rows), step):
            part = rows[begin:begin + step]
            changed = quantized(part)
            errors += (changed - part).double().square().sum(0)
            out[..., begin:begin + step] = linear(x, changed)
        self.errors[modules[0]] = errors.cpu()
        return gemm.add_to(out)


class PerturbedInputs(GemmMode):
    """Quantizes the inputs of `group`, a list of module names, each row with its own global scale."""

    def __init__(self, weights, group):
        super().__init__(weights)
        self.group = frozenset(group)

    def run_gemm(self, gemm, modules):
        if not modules or modules[0] not in self.group or gemm.x.numel() == 0:
            return gemm.run()
        x = quantized(gemm.x.reshape(-1, gemm.x.shape[-1]), "vector").reshape(gemm.x.shape)
        return gemm.add_to(linear(x, rows_of(gemm)))


class Copies:
    """Copies of the hidden states of the same tokens, on disk. `shape` and `dtype` are those of one copy."""

    def __init__(self, path, shape, dtype):
        self.path, self.shape, self.dtype = Path(path), tuple(shape), dtype
        self.bytes = torch.Size(shape).numel() * dtype.itemsize

    def write(self, first, states):
        """Writes consecutive copies from number `first` on."""
        states = states.detach().to(self.dtype).contiguous().cpu()
        try:
            with open(self.path, "r+b" if self.path.exists() else "wb") as file:
                file.seek(first * self.bytes)
                file.write(states.reshape(-1).view(torch.uint8).numpy().data)
        except OSError as no:
            raise IoError.of(self.path, no) from no

    def read(self, first, count, device):
        states = torch.empty((count * self.shape[0], *self.shape[1:]), dtype=self.dtype)
        try:
            with open(self.path, "rb") as file:
                file.seek(first * self.bytes)
                read = file.readinto(states.reshape(-1).view(torch.uint8).numpy().data)
        except OSError as no:
            raise IoError.of(self.path, no) from no
        if read != count * self.bytes:
            raise FormatError(f"{self.path}: is shorter than what was written")
        return states.to(device)


class Sensitivity:
    """The measurement of a run: `weights` by layer and parameter, `tokens` [windows, length]."""

    def __init__(self, blocks, weights, tokens, batch_tokens, folder):
        self.blocks, self.weights, self.tokens, self.folder = blocks, weights, tokens, Path(folder)
        self.groups = [groups_of(of_layer) for of_layer in weights]
        self.side_by_side = max(1, batch_tokens // tokens.numel())  # number of copies that run at a time
        self.errors = {}

    def _count(self, i):
        """Returns the number of copies before layer i: the unchanged one, and two for each earlier group."""
        return 1 + 2 * sum(map(len, self.groups[:i]))

    def _copies(self, i):
        return Copies(self.folder / f"copies-{i}", self.shape, self.dtype)

    def start(self, first):
        """Prepares the run from layer `first` on."""
        (states,), self.arguments = self.blocks.start([self.tokens.repeat(self.side_by_side, 1)])
        plain = states[:len(self.tokens)]
        self.shape, self.dtype = plain.shape, plain.dtype
        if first == 0:
            self._copies(0).path.unlink(missing_ok=True)
            self._copies(0).write(0, plain)

    def _modules(self, i, group):
        """Returns the modules of each matrix of a group."""
        return [names for parameter in self.groups[i][group] for names in self.weights[i][parameter] if names]

    def jobs(self, i, layer, weights, collector, forward):
        """Returns the jobs to run while a layer is loaded. `weights`: those loaded with it; `forward(layer, states,
        arguments)` returns its output."""
        before, after, count = self._copies(i), self._copies(i + 1), self._count(i)
        after.path.unlink(missing_ok=True)
        self.errors = {}

        def run(source, many, target, mode):
            states = before.read(source, many, self.blocks.device)
            with collector.blind(), mode:
                out = forward(layer, states, self.arguments[i])
            self.in_tuple = isinstance(out, tuple)
            after.write(target, out[0] if self.in_tuple else out)

        def plain(begin):
            run(begin, min(self.side_by_side, count - begin), begin, torch.no_grad())

        def perturbed(group, kind):
            mode = kind(weights, (m for names in self._modules(i, group) for m in names))
            with torch.no_grad():
                run(0, 1, count + 2 * group + (kind is PerturbedInputs), mode)
            if kind is Perturbed:
                self.errors[group] = mode.errors

        return [*(partial(plain, begin) for begin in range(0, count, self.side_by_side)),
                *(partial(perturbed, group, kind) for group in range(len(self.groups[i]))
                  for kind in (Perturbed, PerturbedInputs))]

    def add_errors(self, i, statistics, tokens):
        """Stores, for each module of a group, the inverse of the group's output error. `tokens`: number of tokens of
        the text."""
        for group, errors in self.errors.items():
            total = sum(self._output_error(statistics, self.weights[i][p], errors, tokens) for p in self.groups[i][group])
            for module in (m for names in self._modules(i, group) for m in names):
                if total > 0:
                    statistics.tensors[f"{module}.sensitivity"] = torch.tensor([1 / total], dtype=torch.float64)

    @staticmethod
    def _output_error(statistics, matrices, errors, tokens):
        """Returns the mean output error of a token of the text. Experts that the few tokens did not reach get the error
        of the others."""
        lost = seen = every = 0.0
        for module in (names[0] for names in matrices if names):
            count = statistics.tensors[f"{module}.count"].item()
            every += count
            if module in errors:
                seen += count
                lost += (errors[module] * statistics.tensors[f"{module}.diag"]).sum().item()
        return lost / seen * every / tokens if seen else 0.0

    def saved(self, i):
        """Removes the copies before layer i, which is finished."""
        self._copies(i).path.unlink(missing_ok=True)

    def end(self):
        """Replaces the copies after the last layer by the head's inputs."""
        last = len(self.groups)
        copies = self._copies(last)
        for begin in range(0, self._count(last), self.side_by_side):
            many = min(self.side_by_side, self._count(last) - begin)
            states = copies.read(begin, many, self.blocks.device)
            copies.write(begin, self.blocks.tail(self.tokens.repeat(many, 1), states, self.in_tuple))

    def finish(self, statistics):
        """Computes the sensitivities of all layers. A value that is not positive and finite is removed."""
        copies = self._copies(len(self.groups))
        plain = copies.read(0, 1, "cpu").double()
        length = plain.square().sum(-1)

        def roots(number):
            """Returns the sum of (|dh| / |h|)^½ of a copy over the tokens, and the number of tokens."""
            relative = ((copies.read(number, 1, "cpu").double() - plain).square().sum(-1) / length)[length > 0]
            return torch.tensor([relative.pow(1 / 4).sum(), len(relative)], dtype=torch.float64)

        for i, of_layer in enumerate(self.groups):
            for group in range(len(of_layer)):
                of_weights, of_inputs = (roots(self._count(i) + 2 * group + number) for number in range(2))
                for module in (m for names in self._modules(i, group) for m in names):
                    name = f"{module}.sensitivity"
                    inverse = statistics.tensors.pop(name, None)
                    value = torch.zeros(1) if inverse is None else (change(*of_weights) * inverse).float()
                    if value.isfinite() and value > 0:
                        statistics.tensors |= {name: value, f"{module}.change": of_weights}
                    if of_inputs[0].isfinite() and of_inputs[0] > 0:
                        statistics.tensors[f"{module}.input_sensitivity"] = of_inputs
