"""Collects statistics of the inputs of a layer's weights while the layer runs."""

import threading
import weakref
from contextlib import contextmanager
from functools import partial

import torch
from torch.overrides import TorchFunctionMode
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from .._errors import FormatError
from .reading import MODULES
from .statistics import ELEMENTS, Later

_PAIR = (0, ("input",)), (1, ("weight", "other", "mat2", "tensor2"))
_SUM = (1, ("mat1", "batch1")), (2, ("mat2", "batch2"))
#: GEMM function -> position and names of x, and of the argument that may be a weight.
GEMMS = {torch.nn.functional.linear: _PAIR, torch.Tensor.__matmul__: _PAIR, torch.addmm: _SUM, torch.baddbmm: _SUM,
         torch.Tensor.addmm: _SUM, torch.Tensor.baddbmm: _SUM}
GEMMS.update(dict.fromkeys((getattr(of, name) for of in (torch, torch.Tensor) for name in ("matmul", "mm", "bmm")), _PAIR))


#: Number of columns that are summed at a time.
COLUMNS = 1024


class Recent(threading.local):
    """The latest inputs of the running batch, as weak references, with their owners. While `blind` is set, nothing is
    collected."""

    def __init__(self):
        self.inputs, self.blind = [], False


class Collector:
    """Sums over the inputs of the modules of one layer. Inputs and Gram matrices take at most `memory` bytes if there
    is a `spool` for the rest."""

    def __init__(self, keep_gram=False, memory=None, spool=None):
        self.keep_gram, self.spool = keep_gram, spool
        self.left = float("inf") if memory is None or spool is None else memory  # bytes
        self.sums = {}  # module -> [diag, count, amax]
        self.inputs = {}  # owner -> inputs, as long as they have fewer than K rows and take less memory than grams
        self.grams = {}  # owner -> [K, K]
        self.places = {}  # owner -> K and the device of its inputs
        self.owners = {}
        self.recent = Recent()
        self.caches = {}  # attention -> [amax of keys, amax of values]

    def add(self, modules, x):
        """Adds `x` [..., K], the input of each of `modules`."""
        owner = self._owner(modules, x)
        plain = x.detach().reshape(-1, x.shape[-1])
        x = plain
        if x.shape[0] == 0:
            return
        squares, amax = squares_and_amax(x)
        for module in modules:
            if module in self.sums:
                s = self.sums[module]
                s[0] += squares
                s[1] += x.shape[0]
                s[2] = torch.maximum(s[2], amax)
            else:
                self.sums[module] = [squares.clone(), x.shape[0], amax]
        if self.keep_gram and owner in modules:
            self._add_gram(owner, plain)

    def _add_gram(self, owner, x):
        """Adds x [n, K] to the Gram matrix of `owner`. The order of the sum is that of the calls, wherever the parts
        are stored."""
        self.places.setdefault(owner, (x.shape[-1], x.device))
        if owner in self.grams:
            add_to_gram(self.grams[owner], x)
            return
        kept = self.inputs.setdefault(owner, [])
        many = sum(map(len, kept)) + len(x) >= x.shape[-1]
        need = gram_bytes(x.shape[-1]) if many else bytes_of([x])
        if self.spool is not None and (owner in self.spool or need > self.left):
            self.spool.add(owner, x)
            return
        self.left -= need
        if many:
            self.left += bytes_of(kept)  # stored until the matrix is computed
            self._form_gram(owner)
            add_to_gram(self.grams[owner], x)
        else:
            kept.append(x.clone())  # a copy, since the model may change x

    def _form_gram(self, owner):
        depth, device = self.places[owner]
        self.grams[owner] = torch.zeros(depth, depth, device=device)
        kept = self.inputs.pop(owner)[::-1]
        while kept:
            add_to_gram(self.grams[owner], kept.pop())
        for x in self.spool.take(owner) if self.spool is not None else ():
            add_to_gram(self.grams[owner], x.to(device))

    def take_gram(self, owner):
        """Returns the upper triangle of the Gram matrix of `owner`, row by row, and removes the matrix."""
        if owner in self.inputs:
            self._form_gram(owner)
        return upper_triangle(self.grams.pop(owner))

    def _waits_on_disk(self, owner):
        return self.spool is not None and owner in self.spool

    def _owner(self, modules, x):
        """Returns the module that got this input first. It alone keeps the Gram matrix."""
        owner = next((o for seen, o in self.recent.inputs if seen() is x), None)
        if owner is None:
            owner = modules[0]
            self.recent.inputs = [*self.recent.inputs[-3:], (weakref.ref(x), owner)]
        for module in modules:
            if self.owners.setdefault(module, owner) != owner:
                raise RuntimeError(f"{module} has the input of {owner} now, of {self.owners[module]} before")
        return owner

    def forget_inputs(self):
        self.recent.inputs = []

    @contextmanager
    def blind(self):
        self.recent.blind = True
        try:
            yield
        finally:
            self.recent.blind = False

    def add_cache(self, attention, key, value):
        """Adds the `key` and `value` that an attention would cache."""
        if self.recent.blind:
            return
        seen = [t.detach().abs().amax().float() for t in (key, value)]
        before = self.caches.get(attention, seen)
        self.caches[attention] = [torch.maximum(a, b) for a, b in zip(before, seen)]

    def move_to(self, statistics):
        for attention, amaxes in self.caches.items():
            for kind, amax in zip("kv", amaxes):
                statistics.tensors[f"{attention}.{kind}_cache.amax"] = amax.reshape(1).clone().cpu()
        for module, (squares, count, amax) in self.sums.items():
            if not amax.isfinite():
                raise FormatError(f"{module}: its input holds NaN or an infinity, of a weight before it or of an "
                                  f"overflow of the dtype of the arithmetic")
            statistics.tensors[f"{module}.diag"] = squares.cpu()
            statistics.tensors[f"{module}.count"] = torch.tensor([float(count)], dtype=torch.float64)
            statistics.tensors[f"{module}.amax"] = amax.reshape(1).clone().cpu()
        for module in [*self.grams, *self.inputs]:
            depth, _ = self.places[module]
            # Computed when it is saved. Matrices in memory are freed before those on disk are read.
            statistics.tensors[f"{module}.gram"] = Later((depth * (depth + 1) // 2,), torch.float32,
                                                         partial(self.take_gram, module),
                                                         last=self._waits_on_disk(module))
        if self.keep_gram:
            statistics.same_input.update({m: o for m, o in self.owners.items() if m != o})


def gram_bytes(depth):
    return depth * depth * 4


def bytes_of(tensors):
    return sum(t.numel() * t.dtype.itemsize for t in tensors)


def add_to_gram(gram, x):
    """Computes gram += xᵀ · x without another matrix of that size."""
    x = x.float()
    gram.addmm_(x.T, x)


def squares_and_amax(x):
    """Returns the sums of squares of the columns of x [n, K], and the largest magnitude of x. Makes no copy of the
    whole x."""
    squares = torch.empty(x.shape[-1], dtype=torch.float64, device=x.device)
    amaxes = []
    for begin in range(0, x.shape[-1], COLUMNS):
        part = x[:, begin:begin + COLUMNS].float()
        squares[begin:begin + COLUMNS] = part.square().sum(0, dtype=torch.float64)
        amaxes.append(part.abs().amax())
    return squares, torch.stack(amaxes).amax()


def upper_triangle(matrix):
    """Yields the upper triangle [K (K + 1) / 2], row by row, in parts of many rows."""
    rows = max(1, ELEMENTS // len(matrix))
    for begin in range(0, len(matrix), rows):
        yield torch.cat([matrix[row, row:] for row in range(begin, min(begin + rows, len(matrix)))])


class Gemm:
    """A call of one of GEMMS. `x` and `weight` are None if they are not among its arguments."""

    def __init__(self, function, args, kwargs):
        self.function, self.args, self.kwargs = function, args, kwargs
        self.x, self.weight = (args[place] if place < len(args) else next((kwargs[n] for n in names if n in kwargs), None)
                               for place, names in GEMMS[function])

    def run(self):
        return self.function(*self.args, **self.kwargs)

    def add_to(self, result):
        """Returns the result of the call for x · weight: the sum with its bias or its first argument."""
        if GEMMS[self.function] is _SUM:
            added = self.kwargs["input"] if "input" in self.kwargs else self.args[0]
            return self.kwargs.get("beta", 1) * added + self.kwargs.get("alpha", 1) * result
        bias = self.kwargs.get("bias", self.args[2] if len(self.args) > 2 else None)
        return result if bias is None else result + bias


class GemmMode(TorchFunctionMode):
    """Intercepts GEMMs with the weights of a layer. It knows weights by their addresses or by their attribute
    `nvfp4_modules`."""

    def __init__(self, weights):
        super().__init__()
        self.of = {}
        for weight, modules in weights:
            matrices = weight if weight.dim() == 3 else weight[None]
            for matrix, names in zip(matrices, modules):
                if names:
                    self.of[matrix.data_ptr()] = names
            if weight.dim() == 3:
                self.of[weight.data_ptr(), 3] = modules

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if function in GEMMS and isinstance((gemm := Gemm(function, args, kwargs)).weight, torch.Tensor):
            weight = gemm.weight
            if weight.dim() == 3 and (weight.data_ptr(), 3) in self.of:
                return self.run_stack(gemm, self.of[weight.data_ptr(), 3])
            if modules := getattr(weight, MODULES, None) or self.of.get(weight.data_ptr()):
                return self.run_gemm(gemm, modules)
        return function(*args, **kwargs)

    def run_stack(self, gemm, modules):
        """Runs a GEMM with a stack [E, ..], one expert at a time."""
        return gemm.add_to(torch.stack([self.run_gemm(Gemm(torch.matmul, (part, matrix), {}), names)
                                        for part, matrix, names in zip(gemm.x, gemm.weight, modules)]))


class Watch(GemmMode):
    """Passes the inputs of GEMMs to a collector."""

    def __init__(self, weights, collector):
        super().__init__(weights)
        self.collector = collector

    def run_gemm(self, gemm, modules):
        self.collector.add(modules, gemm.x)
        return gemm.run()

    def run_stack(self, gemm, modules):
        for part, names in zip(gemm.x, modules):
            self.collector.add(names, part)
        return gemm.run()


@contextmanager
def watched_attention(names, collector):
    """A context that passes the keys and values of attentions to a collector. `names`: checkpoint names by module."""
    get = ALL_ATTENTION_FUNCTIONS.get_interface

    def watched(implementation, default):
        attention = get(implementation, default)

        def run(module, query, key, value, *args, **kwargs):
            if module in names:
                collector.add_cache(names[module], key, value)
            return attention(module, query, key, value, *args, **kwargs)

        return run

    ALL_ATTENTION_FUNCTIONS.get_interface = watched
    try:
        yield
    finally:
        del ALL_ATTENTION_FUNCTIONS.get_interface
