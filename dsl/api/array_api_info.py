"""What the Array API standard asks of a namespace beside functions of arrays: dtypes, devices, limits, exchange."""

from __future__ import annotations

import builtins
from typing import Any

import ml_dtypes
import numpy as np

from ...compiler.core.types import DTYPES, dtype_kind, real_dtype
from ...runtime.core.frozen import dataclass
from ..array.array import Array, asarray
from ..array.devices import default_device_kind, name_of, open_device
from ..core.errors import DTypeError, TraceError
from ..core.spec import checked_dtype
from ..interop.device_sharing import gpu_of_foreign_array
from ..trace.tracer import Tracer

API_VERSION = "2024.12"


def _dtype_of_array_api_argument(x: Any) -> np.dtype[Any]:
    return x.dtype if isinstance(x, (Array, Tracer, np.ndarray)) else checked_dtype(x)


@dataclass(frozen=True)
class FloatLimits:
    """Of a floating-point dtype; for a complex one those of its parts."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: np.dtype[Any]


@dataclass(frozen=True)
class IntegerLimits:
    """Of an integer dtype."""

    bits: int
    max: int
    min: int
    dtype: np.dtype[Any]


def finfo(type: Any, /) -> FloatLimits:
    """The limits of a floating-point dtype, or of that of an array."""
    dtype = real_dtype(_dtype_of_array_api_argument(type))
    if dtype_kind(dtype) != "f":
        raise DTypeError(f"finfo takes floating-point dtypes, not {dtype}; write kg.iinfo")
    found = ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    limits = (float(found.eps), float(found.max), float(found.min), float(found.smallest_normal))
    return FloatLimits(found.bits, *limits, dtype)


def iinfo(type: Any, /) -> IntegerLimits:
    """The limits of an integer dtype, or of that of an array."""
    dtype = _dtype_of_array_api_argument(type)
    if dtype_kind(dtype) not in "iu":
        raise DTypeError(f"iinfo takes integer dtypes, not {dtype}; write kg.finfo")
    found = np.iinfo(dtype)
    return IntegerLimits(found.bits, int(found.max), int(found.min), dtype)


def isdtype(dtype: Any, kind: Any) -> builtins.bool:
    """Whether a dtype is of a kind or is another dtype. Kinds are `bool`, `signed integer`, `real floating`, `numeric`
    and so on; a tuple is any of them."""
    return builtins.bool(np.isdtype(checked_dtype(dtype), kind))


def from_dlpack(x: Any, /, *, device: str | None = None, copy: builtins.bool | None = None) -> Array:
    """The values of anything that has `__dlpack__`, in a `kg.Array`."""
    if isinstance(x, Tracer):
        raise TraceError("a traced value has no memory yet; pass the array itself to the traced function")
    if isinstance(x, Array) or gpu_of_foreign_array(x) is not None:
        return asarray(x, device=device, copy=copy)
    try:
        return asarray(np.from_dlpack(x), device=device, copy=copy)
    except (AttributeError, TypeError) as error:
        raise DTypeError(f"from_dlpack: {error}") from None


class ArrayNamespaceInfo:
    """What `__array_namespace_info__` gives: see the Array API standard."""

    def capabilities(self) -> dict[str, Any]:
        """Boolean indices and data-dependent shapes work on arrays, outside of traced functions."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> str:
        return name_of(open_device(default_device_kind()))

    def devices(self) -> list[str]:
        return list(dict.fromkeys(["cpu", self.default_device()]))

    def default_dtypes(self, *, device: str | None = None) -> dict[str, Any]:
        return {
            "real floating": np.dtype(np.float64),
            "complex floating": np.dtype(np.complex128),
            "integral": np.dtype(np.int64),
            "indexing": np.dtype(np.int64),
        }

    def dtypes(self, *, device: str | None = None, kind: Any = None) -> dict[str, Any]:
        """The standard's dtypes (float16 and bfloat16 are beside it), of one kind or of several."""
        standard = {d.name: d for d in DTYPES.values() if d.itemsize > 2 or d.kind in "biu"}
        return {n: d for n, d in standard.items() if kind is None or np.isdtype(d, kind)}


def info() -> ArrayNamespaceInfo:
    """Devices, dtypes and capabilities."""
    return ArrayNamespaceInfo()


NAMES: dict[str, Any] = {
    "finfo": finfo,
    "iinfo": iinfo,
    "isdtype": isdtype,
    "from_dlpack": from_dlpack,
    "bool": np.bool_,
    "__array_namespace_info__": info,
    "__array_api_version__": API_VERSION,
}
