"""Watches the inputs of a layer's weights while it runs."""

import torch
from torch.overrides import TorchFunctionMode

#: Products whose second argument may be a weight.
PRODUCTS = {torch.nn.functional.linear, torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__, torch.bmm,
            torch.Tensor.bmm}


class Collector:
    """Adds up the inputs of one block's modules."""

    def __init__(self, keep_gram=False):
        self.keep_gram = keep_gram
        self.sums = {}  # module -> [diag, count, amax]
        self.grams = {}  # owner -> [K, K]
        self.owners = {}
        self.recent = []  # (input, owner): what one forward pass saw last

    def see(self, modules, x):
        """`x` [..., K] is the input of each of `modules`."""
        owner = self._owner(modules, x)
        x = x.detach().reshape(-1, x.shape[-1]).float()
        if x.shape[0] == 0:
            return
        squares, amax = x.square().sum(0, dtype=torch.float64), x.abs().amax()
        for module in modules:
            if module in self.sums:
                s = self.sums[module]
                s[0] += squares
                s[1] += x.shape[0]
                s[2] = torch.maximum(s[2], amax)
            else:
                self.sums[module] = [squares.clone(), x.shape[0], amax]
        if self.keep_gram and owner in modules:
            gram = x.T @ x
            if owner in self.grams:
                self.grams[owner] += gram
            else:
                self.grams[owner] = gram

    def _owner(self, modules, x):
        """The module that saw this input first, and alone keeps its Gram matrix."""
        owner = next((o for seen, o in self.recent if seen is x), None)
        if owner is None:
            owner = modules[0]
            self.recent = [*self.recent[-3:], (x, owner)]
        for module in modules:
            if self.owners.setdefault(module, owner) != owner:
                raise RuntimeError(f"{module} has the input of {owner} now, of {self.owners[module]} before")
        return owner

    def forget_inputs(self):
        self.recent = []

    def move_to(self, statistics):
        for module, (squares, count, amax) in self.sums.items():
            statistics.tensors[f"{module}.diag"] = squares.cpu()
            statistics.tensors[f"{module}.count"] = torch.tensor([float(count)], dtype=torch.float64)
            statistics.tensors[f"{module}.amax"] = amax.reshape(1).clone().cpu()
        for module, gram in self.grams.items():
            rows, columns = torch.triu_indices(*gram.shape, device=gram.device)
            statistics.tensors[f"{module}.gram"] = gram[rows, columns].cpu()
        if self.keep_gram:
            statistics.same_input.update({m: o for m, o in self.owners.items() if m != o})


class Watch(TorchFunctionMode):
    """Shows a collector the inputs of products with the weights of a layer."""

    def __init__(self, weights, collector):
        super().__init__()
        self.collector, self.of = collector, {}
        for weight, modules in weights:
            matrices = weight if weight.dim() == 3 else weight[None]
            for matrix, names in zip(matrices, modules):
                if names:
                    self.of[matrix.data_ptr()] = names
            if weight.dim() == 3:
                self.of[weight.data_ptr(), 3] = modules

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function in PRODUCTS and len(args) >= 2 and isinstance(args[1], torch.Tensor):
            x, weight = args[:2]
            if weight.dim() == 3 and (weight.data_ptr(), 3) in self.of:
                for part, modules in zip(x, self.of[weight.data_ptr(), 3]):
                    self.collector.see(modules, part)
            elif modules := self.of.get(weight.data_ptr()):
                self.collector.see(modules, x)
        return function(*args, **(kwargs or {}))
