"""Follows names of tensors through operations on the meta device, and so through conversions of transformers."""

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Origins(TorchDispatchMode):
    """Follows names of tensors through operations on the meta device."""

    def __init__(self, tensors):
        super().__init__()
        self._names, self._alive = {}, []  # storages stay alive, so that their addresses are not used again
        for name, tensor in tensors.items():
            self._add(tensor, {name})

    def _add(self, tensor, names):
        self._names.setdefault(tensor.untyped_storage()._cdata, set()).update(names)
        self._alive.append(tensor)

    def of(self, tensor):
        """Returns the names of the tensors that this one was made from."""
        return self._names.get(tensor.untyped_storage()._cdata, set())

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        tensors = lambda tree: [t for t in tree_leaves(tree) if isinstance(t, Tensor)]
        names = set().union(*map(self.of, tensors((args, kwargs))))
        if names:
            for tensor in tensors(made):
                self._add(tensor, names)
        return made
