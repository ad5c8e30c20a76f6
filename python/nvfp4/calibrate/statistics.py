"""Files of what calibration saw: for each module the amax, the sums of squares of its input channels,
the count of tokens and, if kept, the Gram matrix XᵀX. They add up, so that parts can be merged."""

import json
import math
import os
from collections.abc import Callable
from dataclasses import dataclass

import torch
from safetensors import SafetensorError, safe_open

from .._errors import FormatError, InvalidValueError, IoError

VERSION_KEY, VERSION = "nvfp4_statistics", "1"
SAME_INPUT_KEY = "same_input"


#: What safetensors calls the dtypes of statistics.
DTYPES = {torch.float32: "F32", torch.float64: "F64"}


@dataclass
class Later:
    """A tensor that is made when it is written, once."""

    shape: tuple
    dtype: torch.dtype
    make: Callable[[], torch.Tensor]


def write_tensors(path, tensors, metadata):
    """A safetensors file, with one tensor at a time in memory: the package safetensors wants all, and writes
    metadata in any order. Equal statistics are equal files."""
    names = sorted(tensors, key=lambda name: (-tensors[name].dtype.itemsize, name))
    header, end = {"__metadata__": dict(sorted(metadata.items()))}, 0
    for name in names:
        t = tensors[name]
        begin, end = end, end + math.prod(t.shape) * t.dtype.itemsize
        header[name] = {"dtype": DTYPES[t.dtype], "shape": list(t.shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text = text.ljust(-(-len(text) // 8) * 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in names:
            t = tensors[name]
            t = t.make() if isinstance(t, Later) else t
            file.write(t.contiguous().cpu().numpy().data)


class Statistics:
    def __init__(self):
        self.tensors = {}  # "<module>.diag", ".count", ".amax", ".gram": tensors, or Later
        self.same_input = {}  # module -> the one that has its Gram matrix

    def modules(self):
        return [name[: -len(".diag")] for name in self.tensors if name.endswith(".diag")]

    def add_empty(self, module, depth):
        """Of a module that saw no token: its count says so."""
        self.tensors |= {f"{module}.diag": torch.zeros(depth, dtype=torch.float64),
                         f"{module}.count": torch.zeros(1, dtype=torch.float64), f"{module}.amax": torch.zeros(1)}

    def unseen(self):
        return [m for m in self.modules() if self.tensors[f"{m}.count"].item() == 0]

    def without_grams(self):
        less = Statistics()
        less.tensors = {name: t for name, t in self.tensors.items() if not name.endswith(".gram")}
        return less

    def save(self, path, metadata=()):
        """As a whole or not at all."""
        temporary = f"{path}.partial"
        same = json.dumps(self.same_input, sort_keys=True)
        write_tensors(temporary, self.tensors, {VERSION_KEY: VERSION, SAME_INPUT_KEY: same, **dict(metadata)})
        os.replace(temporary, path)

    @classmethod
    def load(cls, path):
        statistics = cls()
        try:
            with safe_open(path, "pt") as file:
                metadata = file.metadata() or {}
                if metadata.get(VERSION_KEY) != VERSION:
                    raise FormatError(f"{path}: no file of statistics of version {VERSION}")
                statistics.same_input = json.loads(metadata.get(SAME_INPUT_KEY, "{}"))
                for name in file.keys():
                    statistics.tensors[name] = file.get_tensor(name)
        except OSError as no:
            raise IoError(f"{path}: {no.strerror or no}") from no
        except (SafetensorError, json.JSONDecodeError) as no:
            raise FormatError(f"{path}: {no}") from no
        return statistics

    def add(self, other, name):
        """The sums of both together; `name` is what errors call the other."""
        for module, owner in other.same_input.items():
            if self.same_input.setdefault(module, owner) != owner:
                raise InvalidValueError(f"{name}: {module} has the input of {owner}, of {self.same_input[module]} before")
        for key, tensor in other.tensors.items():
            mine = self.tensors.get(key)
            if mine is None:
                self.tensors[key] = tensor
            elif mine.shape != tensor.shape:
                raise InvalidValueError(f"{name}: {key} has shape {list(tensor.shape)}, {list(mine.shape)} before: "
                                        f"statistics of another model")
            else:
                self.tensors[key] = torch.maximum(mine, tensor) if key.endswith(".amax") else mine + tensor
