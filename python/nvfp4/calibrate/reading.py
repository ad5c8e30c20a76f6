"""Reads matrices of a layer from the checkpoint when they are multiplied, one at a time.

A linear layer gets a class whose `weight` is read. A module with experts gets an object that is indexed in the place of
its stack. Batches that go through the layer together share what is read (turns.py).
"""

import contextlib
import ctypes
import functools

import torch
from torch.overrides import TorchFunctionMode

from .._errors import FormatError
from .experts import forward_llama4, multiplies_all_at_once, stacks_of
from .turns import Turns

#: Attribute of a matrix: the names of its modules in the checkpoint.
MODULES = "nvfp4_modules"


def linears_of(layer):
    """Returns the modules of a layer that multiply by a matrix, by name."""
    return {name: m for name, m in layer.named_modules()
            if isinstance(m, torch.nn.Linear) or type(m).__name__ == "Conv1D"}


def give_back():
    """Returns freed memory to the system. glibc's heaps of threads would keep it."""
    with contextlib.suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


class Opened:
    """The matrix in memory. Batches that need another one wait until it is opened."""

    def __init__(self):
        self.key, self.matrix = None, None

    def take(self, key, read, modules):
        if self.key != key:
            Turns.wait_for(key)
        if self.matrix is None:
            matrix = read()
            setattr(matrix, MODULES, modules)
            self.matrix = matrix
        return self.matrix

    def open(self, key):
        self.matrix = None
        give_back()
        self.key = key


class Stack:
    """Replaces a parameter [E, ..] of a module."""

    def __init__(self, number, parameter, source, device, modules, opened):
        self.number, self.shape, self.dtype, self.device = number, parameter.shape, parameter.dtype, device
        self.source, self.modules, self.opened = source, modules, opened

    def __getitem__(self, expert):
        expert = int(expert)
        if not 0 <= expert < self.shape[0]:
            raise IndexError(f"expert {expert} of {self.shape[0]}")
        module, stack = self.number
        return self.opened.take((1, module, expert, stack), functools.partial(self._read, expert),
                                self.modules[expert] if self.modules else ())

    def _read(self, expert):
        matrix = self.source.read(expert, self.device, self.dtype)
        if matrix.shape != self.shape[1:]:
            raise FormatError(f"{min(self.source.files)}: makes a matrix {list(matrix.shape)}, must be "
                              f"{list(self.shape[1:])}")
        return matrix


class Weight:
    """The weight of a linear layer. In a layer with experts (`alone`) each batch reads it by itself, before all batches
    wait for the experts with little memory in use."""

    def __init__(self, number, parameter, source, device, modules, opened, alone):
        self.number, self.dtype, self.device, self.alone = number, parameter.dtype, device, alone
        self.source, self.modules, self.opened = source, modules, opened

    def get(self):
        key = (0, Turns.number() if self.alone else 0, self.number, 0)
        return self.opened.take(key, functools.partial(self.source.read_whole, self.device, self.dtype), self.modules)


@functools.cache
def reading(kind):
    """Returns a subclass of `kind` whose weight is read from `nvfp4_weight`."""
    return type(kind.__name__, (kind,), {"weight": property(lambda self: self.__dict__["nvfp4_weight"].get())})


class Streamed:
    """The matrices of a layer, which are read one by one while the layer runs."""

    def __init__(self, experts, linears, sources, device, names):
        """`experts` and `linears`: modules by name; `sources` by parameter; `names`: checkpoint modules of the matrices
        of each parameter."""
        self.opened, self.stacks, self.linears = Opened(), [], []
        for number, (name, module) in enumerate(experts.items()):
            for nth, last in enumerate(stacks_of(module)):
                parameter = f"{name}.{last}"
                self.stacks.append((module, last, Stack((number, nth), module._parameters[last], sources[parameter],
                                                        device, names.get(parameter), self.opened)))
        for number, (name, module) in enumerate(linears.items()):
            parameter = f"{name}.weight"
            (modules,) = names.get(parameter, [()])
            self.linears.append((module, Weight(number, module._parameters["weight"], sources[parameter], device,
                                                modules, self.opened, bool(self.stacks))))

    def most(self):
        """Returns the largest number of experts of a module."""
        return max((stack.shape[0] for _, _, stack in self.stacks), default=0)

    @contextlib.contextmanager
    def in_place(self, layer):
        """A context in which a layer reads its matrices from the checkpoint. An instance attribute is found before a
        parameter, and a property of the class before both."""
        put = [(module, last, stack) for module, last, stack in self.stacks]
        put += [(m, "forward", forward_llama4.__get__(m)) for m in layer.modules() if multiplies_all_at_once(m)]
        put += [(module, "nvfp4_weight", weight) for module, weight in self.linears]
        kinds = [(module, type(module)) for module, _ in self.linears]
        for module, name, instead in put:
            module.__dict__[name] = instead
        for module, kind in kinds:
            module.__class__ = reading(kind)
        try:
            yield
        finally:
            for module, kind in kinds:
                module.__class__ = kind
            for module, name, _ in put:
                del module.__dict__[name]
            self.opened.open(None)

    def run(self, jobs):
        Turns(self.opened.open).run(jobs)


class EmbeddingRows(TorchFunctionMode):
    """Reads the rows of embeddings that are asked for. `sources`: by name of the parameter. In the place of each is one
    of its shape, dtype and device that takes no memory: of NaN, so that whatever else computes with it is found."""

    def __init__(self, model, sources, device):
        super().__init__()
        self.sources, self.placed = {}, []
        for name, source in sources.items():
            module, last = model.get_submodule(name.rpartition(".")[0]), name.rpartition(".")[2]
            shape, dtype = module._parameters[last].shape, module._parameters[last].dtype
            nothing = torch.full((), torch.nan, dtype=dtype, device=device).expand(shape)
            placed = torch.nn.Parameter(nothing, requires_grad=False)
            module._parameters[last] = placed
            self.sources[id(placed)] = source
            self.placed.append(placed)

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if function is torch.nn.functional.embedding and len(args) >= 2 and id(args[1]) in self.sources:
            ids, weight = args[:2]
            rows, places = ids.unique(return_inverse=True)
            return self.sources[id(weight)].read_rows(rows.tolist(), ids.device, weight.dtype)[places]
        return function(*args, **kwargs)
