"""Finds the NVFP4 weights of a checkpoint by its headers, and checks them before anything is loaded. Messages are those
of `nvfp4 verify`."""

from dataclasses import dataclass

from safetensors import SafetensorError, safe_open

from .._errors import FormatError, UnsupportedError
from .fp8 import fp8_weight


@dataclass(frozen=True)
class Weight:
    """An NVFP4 weight of the checkpoint, [rows, cols]."""

    rows: int
    cols: int
    has_input_scale: bool


@dataclass(frozen=True)
class _Tensor:
    file: str
    name: str
    dtype: str
    shape: tuple

    def __str__(self):
        return f"{self.file}: tensor '{self.name}'"

    @property
    def kind(self):
        return f"{self.dtype} {list(self.shape)}"


def _tensors(files):
    found = {}
    for file in files:
        if not str(file).endswith(".safetensors"):
            raise UnsupportedError(f"{file}: NVFP4 weights are read from .safetensors files only")
        try:
            with safe_open(file, "pt") as tensors:
                for name in tensors.keys():
                    view = tensors.get_slice(name)
                    found[name] = _Tensor(str(file), name, view.get_dtype(), tuple(view.get_shape()))
        except SafetensorError as broken:
            raise FormatError(f"{file}: {broken}") from broken
    return found


def _check_scalar(tensor, what):
    if tensor.dtype != "F32" or tensor.shape not in ((), (1,)):
        raise FormatError(f"{tensor}: {tensor.kind}, the {what} scale must be F32 with 1 element(s)")


def _weight(codes, tensors, module, form):
    """Returns the NVFP4 weight with the codes `codes`."""

    def beside(end):
        name = f"{module}.{end}"
        if name not in tensors:
            raise FormatError(f"{codes}: no '{name}' beside it")
        return tensors[name]

    if len(codes.shape) != 2 or codes.shape[1] % 8 or not codes.shape[0]:
        raise FormatError(f"{codes}: {codes.kind}, must be U8 [N, K / 2], K a multiple of 16")
    rows, cols = codes.shape[0], 2 * codes.shape[1]
    scales = beside(form.scales)
    if (scales.dtype, scales.shape) != ("F8_E4M3", (rows, cols // 16)):
        raise FormatError(f"{scales}: {scales.kind}, must be F8_E4M3 {[rows, cols // 16]}, one for each "
                          f"16 codes of '{codes.name}'")
    _check_scalar(beside(form.global_scale), "weight")
    given = tensors.get(f"{module}.{form.input_scale}")
    if given is not None:
        _check_scalar(given, "input")
    if f"{module}.pre_quant_scale" in tensors:
        raise UnsupportedError(f"{codes}: has a pre_quant_scale (AWQ), which is not read")
    return Weight(rows, cols, given is not None)


def quantized_weights(files, form):
    """Returns module -> Weight of all NVFP4 weights, and module -> Fp8Weight of those in FP8. Raises FormatError or
    UnsupportedError for malformed weights and for weights of another format."""
    tensors = _tensors(files)
    weights, in_fp8 = {}, {}
    for name, tensor in tensors.items():
        module, _, end = name.rpartition(".")
        if end == form.codes and tensor.dtype == "U8":
            weights[module] = _weight(tensor, tensors, module, form)
        elif end == "weight" and tensor.dtype == "F8_E4M3":
            in_fp8[module] = fp8_weight(tensor, *(tensors.get(f"{module}.{s}") for s in ("weight_scale", "input_scale")))
        elif end == "weight" and tensor.dtype in ("I8", "U8"):
            raise UnsupportedError(f"{tensor}: {tensor.kind} is no NVFP4 weight, and nothing but FP8 is read beside those")
    for name, tensor in tensors.items():
        module, _, end = name.rpartition(".")
        if end == form.global_scale and module not in weights:
            raise FormatError(f"{tensor}: no codes beside it")
    if not weights:
        raise FormatError(f"{', '.join(map(str, files[:1]))}: quant_method '{form.method}', and no weight "
                          "is NVFP4")
    return weights, in_fp8
