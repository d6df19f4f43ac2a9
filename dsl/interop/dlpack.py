"""DLPack capsules of GPU memory, read and made: see https://dmlc.github.io/dlpack (the C structures of version 1.0).

A capsule that is read is kept as it is: its own destructor tells the producer when nobody needs it any more.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from ctypes import POINTER, c_char_p, c_int32, c_int64, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p
from typing import Any

import numpy as np

from ...compiler.core.types import dtype_of
from ...runtime.core.frozen import frozen

CUDA = 2  # DLDeviceType
READ_ONLY = 1
VERSION = (1, 0)
# DLDataTypeCode of NumPy's kinds; bfloat16 has one of its own
_CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
_BFLOAT = 4


class _DLTensorStruct(ctypes.Structure):
    _fields_ = (
        ("data", c_void_p), ("device_type", c_int32), ("device_id", c_int32), ("ndim", c_int32), ("code", c_uint8),
        ("bits", c_uint8), ("lanes", c_uint16), ("shape", POINTER(c_int64)), ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    )  # fmt: skip


class _DLManagedTensorStruct(ctypes.Structure):
    _fields_ = (("tensor", _DLTensorStruct), ("context", c_void_p), ("deleter", c_void_p))


class _DLManagedTensorVersionedStruct(ctypes.Structure):
    _fields_ = (
        ("major", c_uint32), ("minor", c_uint32), ("context", c_void_p), ("deleter", c_void_p), ("flags", c_uint64),
        ("tensor", _DLTensorStruct),
    )  # fmt: skip


_KINDS: dict[bytes, Any] = {b"dltensor": _DLManagedTensorStruct, b"dltensor_versioned": _DLManagedTensorVersionedStruct}
_python = ctypes.pythonapi
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, c_char_p)(("PyCapsule_IsValid", _python))
_pointer = ctypes.PYFUNCTYPE(c_void_p, ctypes.py_object, c_char_p)(("PyCapsule_GetPointer", _python))
_pointer_of = ctypes.PYFUNCTYPE(c_void_p, c_void_p, c_char_p)(("PyCapsule_GetPointer", _python))
_is_valid_of = ctypes.PYFUNCTYPE(ctypes.c_int, c_void_p, c_char_p)(("PyCapsule_IsValid", _python))
_new = ctypes.PYFUNCTYPE(ctypes.py_object, c_void_p, c_char_p, c_void_p)(("PyCapsule_New", _python))


@frozen
class DLPackTensor:
    """Memory on a device. address: of the first element. strides: in bytes."""

    address: int
    device: tuple[int, int]
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]
    readonly: bool


def read_capsule(capsule: Any) -> DLPackTensor:
    """What a capsule says. Raises BufferError, and TypeError for a dtype that is not known here."""
    for name, kind in _KINDS.items():
        if _is_valid(capsule, name):
            managed = kind.from_address(_pointer(capsule, name))
            break
    else:
        raise BufferError("its __dlpack__ gives no DLPack capsule that is still to be used")
    t = managed.tensor
    dtype = _numpy_dtype_of_dlpack(t.code, t.bits, t.lanes)
    shape = tuple(t.shape[i] for i in range(t.ndim))
    if t.strides:
        strides = tuple(t.strides[i] * dtype.itemsize for i in range(t.ndim))
    else:
        strides = dlpack_byte_strides(shape, dtype.itemsize)
    readonly = bool(kind is _DLManagedTensorVersionedStruct and managed.flags & READ_ONLY)
    return DLPackTensor((t.data or 0) + t.byte_offset, (t.device_type, t.device_id), shape, strides, dtype, readonly)


def dlpack_byte_strides(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """C-contiguous strides in bytes."""
    strides, step = [], itemsize
    for n in reversed(shape):
        strides.append(step)
        step *= max(n, 1)
    return tuple(reversed(strides))


def _numpy_dtype_of_dlpack(code: int, bits: int, lanes: int) -> np.dtype[Any]:
    if lanes == 1 and (code, bits) == (_BFLOAT, 16):
        return dtype_of("bfloat16")
    kind = next((k for k, c in _CODES.items() if c == code), None)
    if lanes != 1 or kind is None:
        raise TypeError(f"DLPack's dtype {code}, {bits} bits, {lanes} lanes is not supported")
    return dtype_of(np.dtype(bool) if kind == "b" else np.dtype(f"{kind}{bits // 8}"))


def make_capsule(tensor: DLPackTensor, versioned: bool, released: Callable[[], None]) -> Any:
    """A capsule; `released` is called once, when whoever took it, or nobody, needs the memory no more."""
    kind = _DLManagedTensorVersionedStruct if versioned else _DLManagedTensorStruct
    managed = kind()
    n = len(tensor.shape)
    shape = (c_int64 * max(1, n))(*tensor.shape)
    strides = (c_int64 * max(1, n))(*(s // tensor.dtype.itemsize for s in tensor.strides))
    t = managed.tensor
    t.data, t.device_type, t.device_id, t.ndim = tensor.address, *tensor.device, n
    t.code = _CODES.get(tensor.dtype.kind, _BFLOAT) if tensor.dtype.name != "bfloat16" else _BFLOAT
    t.bits, t.lanes = 8 * tensor.dtype.itemsize, 1
    t.shape, t.strides = ctypes.cast(shape, POINTER(c_int64)), ctypes.cast(strides, POINTER(c_int64))
    managed.deleter = ctypes.cast(_deleter, c_void_p).value
    if versioned:
        managed.major, managed.minor = VERSION
        managed.flags = READ_ONLY if tensor.readonly else 0
    address = ctypes.addressof(managed)
    _made[address] = (managed, shape, strides, released)
    name = b"dltensor_versioned" if versioned else b"dltensor"
    return _new(address, name, ctypes.cast(_destructor, c_void_p))


_made: dict[int, Any] = {}  # by address: the structures of capsules that somebody still needs


def _delete_managed_tensor(address: int) -> None:
    """Called by the consumer, from any thread."""
    found = None if sys.is_finalizing() else _made.pop(address, None)
    if found is not None:
        found[3]()


def _destroy_dlpack_capsule(capsule: int) -> None:
    """Of a capsule; one that nobody took still has its name."""
    for name in _KINDS:
        if _is_valid_of(capsule, name):
            _delete_managed_tensor(_pointer_of(capsule, name))


_deleter = ctypes.CFUNCTYPE(None, c_void_p)(_delete_managed_tensor)
_destructor = ctypes.PYFUNCTYPE(None, c_void_p)(_destroy_dlpack_capsule)
