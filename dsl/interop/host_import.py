"""Arrays of other libraries in, NumPy arrays over the same memory out."""

from __future__ import annotations

import array
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np

from ..core.errors import ArgumentsError, DTypeError
from .device_sharing import (
    attribute_of_foreign_value,
    dlpack_device_of,
    export_refusal,
    foreign_array_device_error,
    has_torch_storage,
    library_type_name,
)

ON_CPU = (1, 3, 11, 13)  # DLPack's kinds of memory that the CPU reads: its own, and pinned or managed by CUDA and ROCm
# what says that it is an array, and what that must be: an object may have an answer to every name
_ARRAY: dict[str, Callable[[Any], bool]] = {
    "__dlpack__": callable,
    "__array__": callable,
    "__array_interface__": lambda answer: isinstance(answer, dict),
    "__cuda_array_interface__": lambda answer: isinstance(answer, dict),
    "__array_struct__": lambda answer: type(answer).__name__ == "PyCapsule",
}


# Python's own, and NumPy's, whose items, `+` and `*` are not those of arrays
NO_ARRAYS = (array.array, bytearray, memoryview, np.poly1d)


def is_foreign_array(value: Any) -> bool:
    """Whether it is an array of another library, or a buffer of numbers."""
    if isinstance(value, (type, ModuleType)):
        return False
    if isinstance(value, (array.array, memoryview)):
        return True
    return any(applies(attribute_of_foreign_value(value, name)) for name, applies in _ARRAY.items())


def foreign_as_numpy(value: Any) -> np.ndarray[Any, Any] | None:
    """The NumPy array of anything that exchanges memory, without a copy. That is by DLPack, NumPy's array interface or
    buffers of numbers; None for anything else. Raises ArgumentsError where the memory cannot be read here,
    DTypeError."""
    if not is_foreign_array(value):
        return None
    if attribute_of_foreign_value(value, "__dlpack__") is not None:
        return _numpy_from_dlpack(value)
    if attribute_of_foreign_value(value, "__cuda_array_interface__") is not None:
        raise foreign_array_device_error(value)
    try:
        return np.asarray(value)
    except (TypeError, ValueError) as error:
        raise DTypeError(f"{library_type_name(value)} cannot be read: {str(error).rstrip('.')}") from None


def foreign_array_as_numpy(x: Any) -> Any:
    """Another library's array as NumPy's, anything else as it is. Raises ArgumentsError, DTypeError."""
    found = None if isinstance(x, (np.ndarray, np.generic)) else foreign_as_numpy(x)
    return x if found is None else found


def _numpy_from_dlpack(value: Any) -> np.ndarray[Any, Any]:
    place = dlpack_device_of(value)
    if place is not None and place[0] not in ON_CPU:
        raise foreign_array_device_error(value)
    if getattr(value, "is_neg", bool)():  # PyTorch's, which DLPack cannot tell
        raise ArgumentsError(
            f"{library_type_name(value)} cannot be read: its negative bit is set; write x.resolve_neg()"
        )
    is_half = "bfloat16" in str(getattr(value, "dtype", ""))  # which NumPy's DLPack does not know
    try:
        found = bfloat16_from_foreign(value) if is_half else np.from_dlpack(value)
        if found.size and hasattr(value, "data_ptr") and not has_torch_storage(value):
            raise BufferError("its storage was resized to nothing")
        return found
    except (BufferError, RuntimeError, ValueError) as error:
        raise ArgumentsError(f"{library_type_name(value)} cannot be read: {export_refusal(error, value)}") from None
    except TypeError as error:
        raise DTypeError(f"{library_type_name(value)} cannot be read: {error}; convert it to float32, say") from None


def bfloat16_from_foreign(value: Any) -> np.ndarray[Any, Any]:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        if value.requires_grad:
            raise BufferError("it requires gradients")
        return np.from_dlpack(value.view(torch.int16)).view(ml_dtypes.bfloat16)
    return np.asarray(value)
