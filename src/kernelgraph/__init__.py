"""NumPy functions, fused into a few kernels and run on parallel streams. Start with `@kernel_graph`."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as _np

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

# where the names above live: each module is loaded when a name of it is first asked for
_HOMES = {
    "dsl.array.array": ("Array", "array", "asarray"),
    "dsl.array.devices": ("DeviceName", "DeviceUnavailableError", "device"),
    "dsl.core.errors": (
        "ArgumentsError",
        "AxisError",
        "ConversionError",
        "DTypeError",
        "EscapedValueError",
        "FallbackWarning",
        "IndexingError",
        "NotFiniteError",
        "NumberError",
        "OptionError",
        "ReadOnlyError",
        "ShapeError",
        "TraceError",
        "UnsupportedError",
        "UserError",
    ),
    "dsl.array.transfer": ("pinned_empty", "prefetch", "to_device", "wait"),
    "dsl.array.in_flight": ("waitall",),
    "dsl.gradients.batching": ("hessian", "hvp", "jacobian", "vmap"),
    "dsl.gradients.custom_rules": ("checkpoint", "custom_jvp", "custom_vjp", "stop_gradient"),
    "dsl.gradients.gradients": ("grad", "jvp", "linearize", "value_and_grad", "vjp"),
    "dsl.devices.collectives": ("all_gather", "all_reduce", "all_to_all", "broadcast", "permute", "reduce_scatter"),
    "dsl.devices": ("distributed",),
    "dsl.stores": ("optimizer",),
    "dsl.devices.checkpoints": ("load_sharded", "save_sharded"),
    "dsl.devices.data_parallel": ("DataParallel",),
    "dsl.stores.kvstore": ("KVStore",),
    "dsl.devices.mesh": ("Mesh", "Sharded", "replicate", "shard"),
    "dsl.devices.places": ("place",),
    "dsl.stores.row_sparse": ("RowSparse",),
    "dsl.jit.kernel_graph": ("KernelGraph", "kernel_graph"),
    "dsl.report.comparison": ("Comparison", "compare"),
    "dsl.report.report": ("Report",),
    "dsl.array.memory": ("empty_cache", "memory", "memory_limit", "memory_stats", "use_allocator"),
    "dsl.api.custom_calls": ("host", "kernel"),
    "dsl.api.elementwise": ("Elementwise", "elementwise"),
    "dsl.api.profile": ("Profile", "profile"),
    "dsl.core.precision": ("precision",),
    "dsl.core.spec": ("Spec", "spec"),
    "dsl.array.streams": ("Event", "Stream", "current_stream", "default_stream", "stream", "synchronize"),
    "runtime.core.errors": (
        "CompileError",
        "DeviceLost",
        "KernelGraphError",
        "LaunchError",
        "OutOfMemory",
        "PlanError",
        "RankError",
    ),
    "runtime.core.settings": ("override", "settings"),
    "ml_dtypes": ("bfloat16",),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """The names of `_HOMES`, and the functions: every NumPy function that can be traced, under NumPy's name, and `erf`,
    `relu`, ..."""
    home = _HOME.get(name)
    if home is not None:
        from .runtime.core.gc_pause import paused_garbage_collection

        with paused_garbage_collection():
            if home in ("dsl.devices", "dsl.stores"):  # a module
                importlib.import_module(f".{home}.{name}", __name__)
            value = getattr(importlib.import_module(home if home == "ml_dtypes" else f".{home}", __name__), name)
            if home.startswith("dsl.array."):
                importlib.import_module(".dsl.jit.eager", __name__)  # gives `Array` its operations
    else:
        if name.startswith("__") and not name.startswith("__array_"):
            raise AttributeError(f"module 'kernelgraph' has no attribute {name!r}")
        from .dsl.api.namespace import NAMESPACE

        try:
            value = NAMESPACE[name]
        except KeyError:
            import sys

            from .dsl.core.errors import MissingAttributeError
            from .dsl.core.foreign_names import FOREIGN_MODULE, instead_of

            text = f"module 'kernelgraph' has no attribute {name!r}{instead_of(name, FOREIGN_MODULE)}"
            missing = MissingAttributeError(text)
            missing.name, missing.obj = name, sys.modules[__name__]  # so that Python says what is meant
            raise missing from None
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    from .dsl.api.namespace import NAMESPACE

    return sorted({*globals(), *_HOME, *NAMESPACE})


__all__ = sorted(_HOME)
