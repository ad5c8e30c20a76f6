"""Types of the package; the docstrings of the functions say what they do."""

from enum import Enum
from os import PathLike
from typing import (Any, Callable, Dict, Iterable, List, Optional, Protocol, Sequence, Tuple,
                    Union)

class _DLPack(Protocol):
    def __dlpack__(self) -> Any: ...
    def __dlpack_device__(self) -> Tuple[Any, int]: ...

#: An array of NumPy, PyTorch, CuPy or JAX; results are of the same framework.
Array = Any
#: Also any object that exports memory: memoryview, array.array, ...
ArrayLike = Union[_DLPack, Any]
Scalar = Union[float, ArrayLike]
Path = Union[str, "PathLike[str]"]
Report = Dict[str, Any]
#: Called with (tensor, tensors_done, tensors_total, bytes_done, bytes_total); True: a tqdm bar
Progress = Union[bool, Callable[[str, int, int, int, int], None]]
__version__: str
__all__: List[str]

class Error(Exception):
    code: str
    def __init__(self, *args: object, code: str | None = None) -> None: ...
    @property
    def fix(self) -> str: ...
class ShapeError(Error, ValueError): ...
class InvalidValueError(Error, ValueError): ...
class UnsupportedError(Error, NotImplementedError): ...
class DeviceError(Error, RuntimeError): ...
class IoError(Error, OSError): ...
class FormatError(Error, ValueError): ...

class SfLayout(Enum):
    layout_128x4 = 0
    layout_8x4 = 1
    layout_linear = 2

class QuantizedTensor:
    codes: Array
    scales: Array
    global_scale: Array  #: MULTIPLIERS
    shape: Tuple[int, ...]
    axis: str
    block: int
    layout: str
    scope: str
    def __init__(self, codes: Array, scales: Array, global_scale: Array, shape: Tuple[int, ...],
                 axis: str = "rows", block: int = 16, layout: str = "linear",
                 scope: str = "tensor") -> None: ...
    @property
    def rows(self) -> int: ...
    @property
    def cols(self) -> int: ...
    def dequantize(self, dtype: Any = "float32", **options: Any) -> Array: ...

class PackedWeights:
    def __init__(self, data: Array, rows: int, cols: int, groups: int = 1,
                 scope: Optional[str] = None, gate_up: Optional[int] = None) -> None: ...
    @property
    def data(self) -> Array: ...
    @property
    def rows(self) -> int: ...
    @property
    def cols(self) -> int: ...
    @property
    def groups(self) -> int: ...
    @property
    def scope(self) -> str: ...
    @property
    def nbytes(self) -> int: ...

class GemmPlan:
    @property
    def kernel(self) -> str: ...
    @property
    def tile(self) -> Tuple[int, int, int, int]: ...
    @property
    def workspace_bytes(self) -> int: ...
    @property
    def rows(self) -> int: ...
    @property
    def form(self) -> str: ...
    @property
    def epilogue(self) -> str: ...
    @property
    def x_dtype(self) -> str: ...
    @property
    def out_dtype(self) -> str: ...

def quantize(x: ArrayLike, quantizer: str = "mse", *,
             global_scale: Optional[Scalar] = None,
             global_divisor: Optional[Scalar] = None, axis: str = "rows", block: int = 16, layout: str = "linear", scope: str = "tensor",
             scale_dtype: Any = "uint8", weights: Optional[ArrayLike] = None,
             hessian: Optional[ArrayLike] = None, check_finite: bool = False,
             out: Optional[QuantizedTensor] = None, stream: Optional[int] = None,
             backend: str = "") -> QuantizedTensor: ...
def dequantize(q: QuantizedTensor, dtype: Any = "float32", *, out: Optional[Array] = None,
               stream: Optional[int] = None, backend: str = "") -> Array: ...
def amax(x: ArrayLike, scope: str = "tensor", axis: str = "rows", *, stream: Optional[int] = None,
         backend: str = "") -> Array: ...
def global_scales(x: ArrayLike, quantizer: str = "mse", scope: str = "tensor", axis: str = "rows",
                  *, stream: Optional[int] = None, backend: str = "") -> Tuple[Array, Array]: ...
def quantization_error(x: ArrayLike, q: QuantizedTensor, *,
                       backend: str = "") -> Tuple[float, float]: ...
def relayout_scales(q: QuantizedTensor, layout: str, *,
                    stream: Optional[int] = None) -> QuantizedTensor: ...
def pack_weights(*parts: QuantizedTensor, groups: int = 1, gate_up: Optional[int] = None,
                 stream: Optional[int] = None) -> PackedWeights: ...
def unpack_weights(w: PackedWeights, group: int = 0, *,
                   stream: Optional[int] = None) -> QuantizedTensor: ...
def plan_gemm(w: PackedWeights, rows: int, *, x_dtype: Any = "bfloat16",
              out_dtype: Any = "bfloat16", form: Optional[str] = None, shared_x: bool = False,
              epilogue: str = "none", swiglu_limit: float = ..., batch_invariant: bool = False,
              max_workspace_bytes: int = 0, kernel: str = "", backend: str = "",
              top_k: int = 0, autotune: bool = False) -> GemmPlan: ...
def gemm(x: Union[ArrayLike, QuantizedTensor], w: PackedWeights, *,
         row_ends: Optional[Union[Sequence[int], ArrayLike]] = None,
         row_starts: Optional[Union[Sequence[int], ArrayLike]] = None,
         expert_ids: Optional[ArrayLike] = None, out_dtype: Any = None,
         out: Optional[Union[Array, QuantizedTensor]] = None, alpha: Scalar = 1.0,
         bias: Optional[ArrayLike] = None, epilogue: str = "none", swiglu_limit: float = ...,
         out_global_scale: Optional[Scalar] = None, out_layout: str = "linear",
         out_scope: str = "tensor", batch_invariant: bool = False, kernel: str = "",
         backend: str = "", autotune: bool = False, plan: Optional[GemmPlan] = None,
         workspace: Optional[Array] = None,
         stream: Optional[int] = None) -> Union[Array, QuantizedTensor]: ...
def nvfp4_quantize(a: ArrayLike, a_global_sf: Scalar, sfLayout: SfLayout = ...,
                   do_shuffle: bool = False, sf_vec_size: int = 16,
                   enable_pdl: Optional[bool] = None, *, per_token_activation: bool = False,
                   quantizer: str = "max", stream: Optional[int] = None,
                   backend: str = "") -> Tuple[Array, ...]: ...
def e2m1_and_ufp8sf_scale_to_float(e2m1_tensor: ArrayLike, ufp8_scale_tensor: ArrayLike,
                                   global_scale_tensor: Optional[Scalar] = None,
                                   sf_vec_size: int = 16, ufp8_type: int = 1,
                                   is_sf_swizzled_layout: bool = True,
                                   is_sf_8x4_layout: bool = False, *, dtype: Any = "float32",
                                   stream: Optional[int] = None, backend: str = "") -> Array: ...
def block_scale_interleave(unswizzled_sf: ArrayLike, *, stream: Optional[int] = None) -> Array: ...
def silu_and_mul_nvfp4_quantize(input: ArrayLike, global_scale: Scalar, sf_vec_size: int = 16,
                                is_sf_swizzled_layout: bool = True, is_sf_8x4_layout: bool = False,
                                enable_pdl: Optional[bool] = None, *, quantizer: str = "max",
                                stream: Optional[int] = None,
                                backend: str = "") -> Tuple[Array, Array]: ...
def rmsnorm_fp4quant(input: ArrayLike, weight: ArrayLike, y_fp4: Optional[Array] = None,
                     block_scale: Optional[Array] = None, global_scale: Optional[Scalar] = None,
                     eps: float = 1e-6, block_size: int = 16, scale_format: Optional[str] = None,
                     is_sf_swizzled_layout: bool = False, enable_pdl: Optional[bool] = None, *,
                     quantizer: str = "max", stream: Optional[int] = None,
                     backend: str = "") -> Tuple[Array, Array]: ...
def add_rmsnorm_fp4quant(input: ArrayLike, residual: Array, weight: ArrayLike,
                         y_fp4: Optional[Array] = None, block_scale: Optional[Array] = None,
                         global_scale: Optional[Scalar] = None, eps: float = 1e-6,
                         block_size: int = 16, scale_format: Optional[str] = None,
                         is_sf_swizzled_layout: bool = False,
                         output_both_sf_layouts: bool = False,
                         block_scale_unswizzled: Optional[Array] = None,
                         enable_pdl: Optional[bool] = None, y_out: Optional[Array] = None, *,
                         quantizer: str = "max", stream: Optional[int] = None,
                         backend: str = "") -> Tuple[Array, ...]: ...
def mm_fp4(a: ArrayLike, b: Union[ArrayLike, PackedWeights], a_descale: ArrayLike,
           b_descale: Optional[ArrayLike], alpha: Optional[Scalar] = None,
           out_dtype: Any = "bfloat16", out: Optional[Array] = None, block_size: int = 16,
           use_8x4_sf_layout: bool = False, backend: str = "", use_nvfp4: bool = True,
           enable_pdl: Optional[bool] = None, *, workspace: Optional[Array] = None,
           stream: Optional[int] = None) -> Array: ...
def grouped_mm_fp4(a: ArrayLike, b: Union[ArrayLike, PackedWeights], a_descale: ArrayLike,
                   b_descale: Optional[ArrayLike], m_indptr: Union[Sequence[int], ArrayLike],
                   alpha: Optional[Scalar] = None, out: Optional[Array] = None,
                   out_dtype: Any = "bfloat16", block_size: int = 16, *,
                   backend: str = "", workspace: Optional[Array] = None, stream: Optional[int] = None) -> Array: ...
def quantize_checkpoint(input: Path, output: Path, *, scheme: str = "nvfp4",
                        format: Optional[str] = None, method: Optional[str] = None,
                        statistics: Optional[Path] = None,
                        recipe: Optional[Path] = None, bits: Optional[float] = None,
                        size: Optional[Union[int, str]] = None, merge: Iterable[str] = (),
                        ignore: Iterable[str] = (), include: Iterable[str] = (),
                        fuse: Iterable[str] = (), input_amax: Optional[Path] = None,
                        rank: Optional[int] = None, ranks: Union[int, str] = 1,
                        resume: bool = False, overwrite: bool = False, dry_run: bool = False,
                        allow: Iterable[str] = (), keep_dtype: bool = False,
                        backend: str = "", device: str = "cpu",
                        progress: Optional[Progress] = None) -> Report: ...
def convert(input: Path, output: Path, to: str, *, scheme: Optional[str] = None,
            method: str = "mse", input_amax: Optional[Path] = None, resume: bool = False,
            overwrite: bool = False, dry_run: bool = False, allow: Iterable[str] = (), backend: str = "", device: str = "cpu",
            progress: Optional[Progress] = None) -> Report: ...
def repair(path: Path, output: Path, *, source: Optional[Path] = None, scales: str = "linear",
           nibbles: str = "low", input_amax: Optional[Path] = None, method: str = "mse",
           resume: bool = False, overwrite: bool = False, dry_run: bool = False, backend: str = "",
           device: str = "cpu",
           progress: Optional[Progress] = None) -> Report: ...
def verify(path: Path, *, source: Optional[Path] = None, loader: str = "", full: bool = False,
           rank: Optional[int] = None, ranks: Union[int, str] = 1, parts: Optional[Path] = None,
           progress: Optional[Progress] = None) -> Report: ...
def inspect(path: Path, *, tensor: Optional[str] = None, histograms: bool = True,
            progress: Optional[Progress] = None) -> Report: ...
def compare(a: Path, b: Path, *, html: Optional[Path] = None, against: Optional[Path] = None,
            run: Optional[Path] = None, statistics: Optional[Path] = None,
            rank: Optional[int] = None, ranks: Union[int, str] = 1, parts: Optional[Path] = None,
            progress: Optional[Progress] = None) -> Report: ...
def sample(output: Path, *, arch: str = "llama", layers: int = 0, scale: float = 0.125,
           seed: int = 0, shards: int = 0, overwrite: bool = False) -> None: ...
def backends() -> List[Dict[str, Any]]: ...
def conversion_targets() -> List[str]: ...
def devices() -> List[Dict[str, Any]]: ...
def quantizer_names() -> List[str]: ...
def set_threads(count: int) -> None: ...
def threads() -> int: ...
