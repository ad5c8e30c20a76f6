"""Files of statistics of calibration: for each module the amax, the sums of squares of its input channels, the number
of tokens and, if kept, the Gram matrix XᵀX. They are sums, so that files can be merged."""

import json
import math
import os
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial, reduce
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from .._errors import Error, FormatError, InvalidValueError, IoError, UnsupportedError

VERSION_KEY, VERSION = "nvfp4_statistics", "1"
SAME_INPUT_KEY = "same_input"
RANK_KEY = "nvfp4_rank"  # metadata of one rank's file: {"rank", "ranks", "tokens"}

#: Names of dtypes in safetensors.
DTYPES = {torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
          torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2", torch.int64: "I64",
          torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL"}

#: Number of elements of a Gram matrix that are added or written at a time.
ELEMENTS = 1 << 20


@dataclass
class Later:
    """A tensor that is made when it is read: a tensor, or its parts in order."""

    shape: tuple
    dtype: torch.dtype
    make: Callable
    last: bool = False  # written after the tensors that are in memory

    def parts(self):
        made = self.make()
        return [made] if isinstance(made, torch.Tensor) else made


class Tensors(dict):
    """A dict name -> tensor. A member of type Later is made at each access and not kept."""

    def __getitem__(self, name):
        t = self.stored(name)
        return t if not isinstance(t, Later) else torch.cat([part.reshape(-1) for part in t.parts()]).reshape(t.shape)

    def stored(self, name):
        return super().__getitem__(name)

    def __iter__(self):  # defined here so that dict(tensors) and {**tensors} also make members of type Later
        return super().__iter__()

    def get(self, name, default=None):
        return self[name] if name in self else default

    def items(self):
        return ((name, self[name]) for name in self)

    def values(self):
        return (self[name] for name in self)


def put(file, tensor):
    file.write(tensor.contiguous().cpu().reshape(-1).view(torch.uint8).numpy().data)


def write_tensors(path, tensors, metadata):
    """Writes a safetensors file with one tensor at a time in memory. The package safetensors needs all at once, and its
    metadata have no fixed order. Equal statistics give equal files."""
    stored = tensors.stored if isinstance(tensors, Tensors) else tensors.__getitem__
    names = sorted(tensors, key=lambda name: (-stored(name).dtype.itemsize, name))
    header, end = {"__metadata__": dict(sorted(metadata.items()))}, 0
    for name in names:
        t = stored(name)
        begin, end = end, end + math.prod(t.shape) * t.dtype.itemsize
        header[name] = {"dtype": DTYPES[t.dtype], "shape": list(t.shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text = text.ljust(-(-len(text) // 8) * 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in sorted(names, key=lambda name: isinstance(stored(name), Later) and stored(name).last):
            t = stored(name)
            file.seek(8 + len(text) + header[name]["data_offsets"][0])
            if isinstance(t, Later):
                for part in t.parts():
                    put(file, part)
                    del part  # frees memory before the next part is made
            else:
                put(file, t)


def read_later(file, name):
    """Returns a tensor of an open file as a Later."""
    about = file.get_slice(name)
    dtype = next((d for d, text in DTYPES.items() if text == about.get_dtype()), None)
    if dtype is None:
        raise UnsupportedError(f"{name}: has dtype {about.get_dtype()}")
    return Later(tuple(about.get_shape()), dtype, partial(file.get_tensor, name))


@contextmanager
def opened(path):
    """A context with the open file and its metadata."""
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            if metadata.get(VERSION_KEY) != VERSION:
                raise FormatError(f"{path}: no file of statistics of version {VERSION}", code="NV0213")
            yield file, metadata
    except Error:  # raised by the caller while the file was open
        raise
    except OSError as no:
        raise IoError.of(path, no) from no
    except (SafetensorError, json.JSONDecodeError) as no:
        raise FormatError(f"{path}: {no}", code="NV0213") from no


def total(key, tensors):
    """Returns the sum of tensors with one name, or the largest for .amax. Sums start with the smallest number, so that
    the order of the tensors does not matter."""
    if len(tensors) == 1:
        return tensors[0]
    values = torch.stack(tensors)
    if key.endswith(".amax"):
        return values.amax(0)
    values, sums = values.sort(0).values, torch.zeros_like(tensors[0], dtype=torch.float64)
    for part in values:
        sums += part
    return sums.to(values.dtype)


def tokens_of(file):
    """Returns the number of tokens of the text: the largest count of a module."""
    return max(file.get_tensor(key).item() for key in file.keys() if key.endswith(".count"))


def change(roots, tokens):
    """Returns the change of the last hidden state. `roots`: sum over tokens of (|dh| / |h|)^½."""
    return (roots / tokens) ** 4


def merged_sensitivity(values, changes, tokens):
    """Returns the sensitivity of a module for several files, independent of their order. It is the change of the last
    hidden state over all measured tokens, divided by the mean output error over the `tokens` of all texts."""
    roots, measured = (math.fsum(part) for part in zip(*(c.tolist() for c in changes)))
    error = math.fsum(change(*c.tolist()) / v.item() * n for v, c, n in zip(values, changes, tokens))
    return torch.tensor([change(roots, measured) / (error / math.fsum(tokens))], dtype=values[0].dtype)


def sum_in_parts(key, paths):
    """Yields the sum of tensors with one name, ELEMENTS at a time."""
    with ExitStack() as stack:
        slices = [stack.enter_context(opened(path))[0].get_slice(key) for path in paths]
        for begin in range(0, slices[0].get_shape()[0], ELEMENTS):
            yield total(key, [s[begin:begin + ELEMENTS] for s in slices])


def gram_of(key, abouts, paths):
    """Returns the sum of Gram matrices with one name, made when it is read. `abouts`: results of read_later() for each
    file."""
    shape = abouts[0].shape
    for about, path in zip(abouts, paths):
        if len(shape) != 1 or about.dtype not in (torch.float32, torch.float64):
            raise FormatError(f"{path}: {key} is {DTYPES[about.dtype]} {list(shape)}, must be F32 or F64 [K (K + 1) / 2]",
                              code="NV0213")
    dtype = reduce(torch.promote_types, (about.dtype for about in abouts))
    return Later(shape, dtype, partial(sum_in_parts, key, paths))


def require_all_ranks(metadata):
    """Raises InvalidValueError unless the files have each rank of a run exactly once. `metadata`: that of each file."""
    runs = defaultdict(dict)
    for path, words in metadata.items():
        if RANK_KEY in words:
            try:
                part = json.loads(words[RANK_KEY])
                rank, of_run = int(part["rank"]), runs[str(part["tokens"]), int(part["ranks"])]
            except (KeyError, TypeError, ValueError):
                raise FormatError(f"{path}: {RANK_KEY} is no rank", code="NV0213") from None
            if rank in of_run:
                raise InvalidValueError(f"{path}: is of rank {rank}, as is {of_run[rank]}")
            of_run[rank] = path
    for (_, ranks), of_run in runs.items():
        missing = next((rank for rank in range(ranks) if rank not in of_run), None)
        if missing is not None:
            raise InvalidValueError(f"{next(iter(of_run.values()))}: is of {ranks} ranks, of which rank {missing} "
                                    f"is not given")


def require_output(path):
    """Checks the output path before the work. It must be new or a file of statistics, and its folder must be
    writable."""
    path = Path(path)
    if path.exists() and not path.is_file():
        raise IoError(f"{path}: must be a regular file", code="NV0107")
    if path.exists():
        try:
            with opened(path):
                pass
        except FormatError as no:
            raise InvalidValueError(f"{path}: is there already and holds no statistics, so it is not replaced") from no
    folder = next(folder for folder in path.absolute().parents if folder.exists())
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise IoError(f"{folder}: cannot create a file in it")


class Statistics:
    def __init__(self):
        self.tensors = Tensors()  # "<module>.diag", ".count", ".amax", ".gram", ".sensitivity", ".change"
        self.same_input = {}  # module -> module with the same input, which has the Gram matrix

    def modules(self):
        return [name[: -len(".diag")] for name in self.tensors if name.endswith(".diag")]

    def add_empty(self, module, depth):
        """Adds a module that got no token; its count is 0."""
        self.tensors |= {f"{module}.diag": torch.zeros(depth, dtype=torch.float64),
                         f"{module}.count": torch.zeros(1, dtype=torch.float64), f"{module}.amax": torch.zeros(1)}

    def unseen(self):
        return [m for m in self.modules() if self.tensors[f"{m}.count"].item() == 0]

    def without_grams(self):
        less = Statistics()
        less.tensors |= {name: self.tensors[name] for name in self.tensors if not name.endswith(".gram")}
        return less

    def save(self, path, metadata=()):
        """Writes the file, as a whole or not at all."""
        temporary = f"{path}.partial"
        same = json.dumps(self.same_input, sort_keys=True)
        write_tensors(temporary, self.tensors, {VERSION_KEY: VERSION, SAME_INPUT_KEY: same, **dict(metadata)})
        os.replace(temporary, path)

    @classmethod
    def load(cls, path):
        """Reads a file into memory. Gram matrices are read when they are used."""
        statistics = cls()
        with opened(path) as (file, metadata):
            statistics.same_input = json.loads(metadata.get(SAME_INPUT_KEY, "{}"))
            for name in file.keys():
                if name.endswith(".gram"):
                    statistics.tensors[name] = gram_of(name, [read_later(file, name)], [path])
                else:
                    statistics.tensors[name] = file.get_tensor(name)
        return statistics

    @classmethod
    def sum_of(cls, paths):
        """Returns the sum of files of one model, in any order. Gram matrices are added when they are used."""
        sums, shapes = cls(), {}
        with ExitStack() as stack:
            files = {}
            for path in map(str, paths):
                if path in files:
                    raise InvalidValueError(f"{path}: is given twice")
                files[path] = stack.enter_context(opened(path))
            require_all_ranks({path: metadata for path, (_, metadata) in files.items()})
            having, tokens = defaultdict(list), {}
            for path, (file, metadata) in files.items():
                for module, owner in json.loads(metadata.get(SAME_INPUT_KEY, "{}")).items():
                    if sums.same_input.setdefault(module, owner) != owner:
                        raise InvalidValueError(f"{path}: {module} has the input of {owner}, of "
                                                f"{sums.same_input[module]} before")
                for key in file.keys():
                    shape = file.get_slice(key).get_shape()
                    if shapes.setdefault(key, shape) != shape:
                        raise InvalidValueError(f"{path}: {key} has shape {shape}, {shapes[key]} before: statistics "
                                                f"of another model", code="NV0308")
                    having[key].append(path)
            for key, of_key in having.items():
                if key.endswith(".gram"):
                    sums.tensors[key] = gram_of(key, [read_later(files[path][0], key) for path in of_key], of_key)
                elif key.endswith(".sensitivity") and len(of_key) > 1:
                    tokens = tokens or {path: tokens_of(file) for path, (file, _) in files.items()}
                    change = f"{key.removesuffix('.sensitivity')}.change"
                    if having.get(change) != of_key:
                        raise FormatError(f"{of_key[0]}: {key} without {change}; calibrate again")
                    sums.tensors[key] = merged_sensitivity(
                        *([files[path][0].get_tensor(name) for path in of_key] for name in (key, change)),
                        [tokens[path] for path in of_key])
                else:
                    sums.tensors[key] = total(key, [files[path][0].get_tensor(key) for path in of_key])
        return sums
