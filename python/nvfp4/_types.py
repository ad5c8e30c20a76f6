"""Types of arguments and results."""

from typing import Any, Callable, Protocol, Tuple, TypeVar, Union


class _DLPack(Protocol):
    def __dlpack__(self) -> Any: ...
    def __dlpack_device__(self) -> Tuple[Any, int]: ...


#: An array of NumPy, PyTorch, CuPy or JAX; results are of the same framework.
Array = Any
#: Also any object that exports memory: memoryview, array.array, ...
ArrayLike = Union[_DLPack, Any]
Scalar = Union[float, ArrayLike]
#: A function that a decorator returns with its signature.
Function = TypeVar("Function", bound=Callable[..., Any])
