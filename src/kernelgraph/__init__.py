"""NumPy functions, fused into a few kernels and run on parallel streams. Start with `@kernel_graph`."""

from __future__ import annotations

from typing import Any

import numpy as _np
from ml_dtypes import bfloat16

from .dsl.array import Array, array, asarray, to_device, waitall
from .dsl.devices import DeviceUnavailableError
from .dsl.errors import (
    ArgumentsError,
    AxisError,
    DTypeError,
    EscapedValueError,
    IndexingError,
    NumberError,
    OptionError,
    ReadOnlyError,
    ShapeError,
    TraceError,
    UnsupportedError,
    UserError,
)
from .dsl.kernel_graph import KernelGraph, kernel_graph
from .dsl.namespace import NAMESPACE as _NAMESPACE
from .dsl.spec import Spec, spec
from .runtime.errors import CompileError, DeviceLost, KernelGraphError, OutOfMemory, PlanError
from .runtime.settings import override, settings

__version__ = "0.1.0"

e, pi, inf, nan, newaxis = _np.e, _np.pi, _np.inf, _np.nan, None
bool_, int8, int16, int32, int64 = _np.bool_, _np.int8, _np.int16, _np.int32, _np.int64
uint8, uint16, uint32, uint64 = _np.uint8, _np.uint16, _np.uint32, _np.uint64
float16, float32, float64, complex64, complex128 = (
    _np.float16,
    _np.float32,
    _np.float64,
    _np.complex64,
    _np.complex128,
)


def __getattr__(name: str) -> Any:
    """The functions: every NumPy function that can be traced, under NumPy's name, and `erf`, `relu`, ..."""
    try:
        return _NAMESPACE[name]
    except KeyError:
        raise AttributeError(f"module 'kernelgraph' has no attribute {name!r}") from None


def __dir__() -> list[str]:
    return sorted({*globals(), *_NAMESPACE})


__all__ = [
    "ArgumentsError",
    "Array",
    "AxisError",
    "CompileError",
    "DTypeError",
    "DeviceLost",
    "DeviceUnavailableError",
    "EscapedValueError",
    "IndexingError",
    "KernelGraph",
    "KernelGraphError",
    "NumberError",
    "OptionError",
    "OutOfMemory",
    "PlanError",
    "ReadOnlyError",
    "ShapeError",
    "Spec",
    "TraceError",
    "UnsupportedError",
    "UserError",
    "array",
    "asarray",
    "bfloat16",
    "kernel_graph",
    "override",
    "settings",
    "spec",
    "to_device",
    "waitall",
]
