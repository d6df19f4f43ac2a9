"""The functions `kg.*`: traced inside a decorated function, and done at once by NumPy outside of one."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from ...compiler.ops.table import OPS, UFUNC_PARTS
from ..core.errors import MissingAttributeError, user_frames
from ..core.foreign_names import instead_of
from ..environment import numpy_proxy
from ..functions import creation, elementwise, manipulation, sorting, tables, topk, unsupported
from ..functions import fft as fourier
from ..jit.eager import run_eagerly
from ..trace.dispatch import FUNCTIONS, NumpyProtocols, apply_view_rule_of_numpy, call_function
from ..trace.trace import current_trace
from . import array_api_info, debug, nn, random
from . import control_flow as loops

__all__ = ["NAMESPACE", "NumpyNamespace"]


def _any_traced_namespace_argument(args: tuple[Any, ...]) -> bool:
    return any(
        isinstance(a, NumpyProtocols) or (isinstance(a, (list, tuple)) and _any_traced_namespace_argument(tuple(a)))
        for a in args
    )


def _namespace_function_traced_or_eager(
    name: str, traced: Callable[..., Any], eager: Callable[..., Any]
) -> Callable[..., Any]:
    """`traced` where a traced value is among the arguments, else `eager` on arrays."""

    def call_namespace_function(*args: Any, **options: Any) -> Any:
        if current_trace() is not None and (
            _any_traced_namespace_argument(args) or _any_traced_namespace_argument(tuple(options.values()))
        ):
            return apply_view_rule_of_numpy(name, traced(*args, **options), args, options)
        try:
            return run_eagerly(eager, args, options)
        except Exception as error:
            raise error.with_traceback(user_frames(error.__traceback__)) from error.__cause__

    return _namespace_function_named_like_numpy(call_namespace_function, name, eager, traced)


def _namespace_creation_traced_or_eager(
    name: str, traced: Callable[..., Any], eager: Callable[..., Any]
) -> Callable[..., Any]:
    """A function that makes an array from no array: traced inside a trace."""

    def create_by_namespace_function(*args: Any, **options: Any) -> Any:
        if current_trace() is not None:
            return apply_view_rule_of_numpy(name, traced(*args, **options), args, options)
        try:
            return run_eagerly(eager, args, options)
        except Exception as error:
            raise error.with_traceback(user_frames(error.__traceback__)) from error.__cause__

    return _namespace_function_named_like_numpy(create_by_namespace_function, name, eager, traced)


def _namespace_function_named_like_numpy(function: Any, name: str, *references: Any) -> Callable[..., Any]:
    """The function with a name, and with the signature and text of a reference. The first reference that has one gives
    it."""
    function.__name__ = function.__qualname__ = name
    function.__doc__ = next((r.__doc__.strip() for r in references if r.__doc__), None)
    for reference in references:
        try:
            function.__signature__ = inspect.signature(reference)
            break
        except ValueError:
            continue
    return function  # type: ignore[no-any-return]


def _traced_ufunc_of_public_namespace(ufunc: np.ufunc) -> Callable[..., Any]:
    return lambda *args, **options: elementwise.call_ufunc(ufunc, *args, **options)


def _traced_function_of_public_namespace(function: Any) -> Callable[..., Any]:
    return lambda *args, **options: call_function(function, args, options)


def _functions_of_public_namespace() -> dict[str, Callable[..., Any]]:
    found: dict[str, Callable[..., Any]] = {}
    for ufunc in UFUNC_PARTS:
        for name in _namespace_names_of_numpy_function(ufunc):
            found[name] = _namespace_function_traced_or_eager(name, _traced_ufunc_of_public_namespace(ufunc), ufunc)
    for function in FUNCTIONS:
        for name in _namespace_names_of_numpy_function(function):
            found[name] = _namespace_function_traced_or_eager(
                name, _traced_function_of_public_namespace(function), function
            )
    for name, traced in elementwise.ELEMENTWISE.items():
        reference = OPS[name].numpy
        if reference is not None and name not in found:
            found[name] = _namespace_function_traced_or_eager(name, traced, reference)
    for function in unsupported.EXPOSED:
        for name in _namespace_names_of_numpy_function(function):
            found[name] = _namespace_function_traced_or_eager(
                name, _traced_function_of_public_namespace(function), function
            )
    made = (creation.zeros, creation.ones, creation.empty, creation.full, creation.arange, creation.eye)
    for traced in (*made, manipulation.tri, manipulation.identity, manipulation.indices, manipulation.fromfunction):
        found[traced.__name__] = _namespace_creation_traced_or_eager(
            traced.__name__, traced, getattr(np, traced.__name__)
        )
    found["sort"] = _namespace_function_traced_or_eager("sort", sorting.sort, sorting.sorted_values)
    found["argsort"] = _namespace_function_traced_or_eager(
        "argsort", sorting.argsort_of_values, sorting.argsort_of_values
    )
    found["unique_values"] = _namespace_function_traced_or_eager(
        "unique_values", _traced_function_of_public_namespace(sorting.unique_values), sorting.unique_values
    )
    found["topk"] = _namespace_function_traced_or_eager("topk", topk.topk, topk.topk_of_arrays)
    found["clip"] = _namespace_function_traced_or_eager("clip", elementwise.clip_traced_array, elementwise.clip_array)
    for window in (np.bartlett, np.blackman, np.hamming, np.hanning, np.kaiser):
        found[window.__name__] = _namespace_creation_traced_or_eager(
            window.__name__, numpy_proxy.numpy_proxy_of(window), window
        )
    found["linspace"] = _namespace_creation_traced_or_eager("linspace", creation.linspace, np.linspace)
    return found


def _namespace_names_of_numpy_function(function: Any) -> list[str]:
    """The names that NumPy's main namespace has for a function (`absolute` and `abs`)."""
    return _NUMPY_NAMES.get(function, [])


def _namespace_names_by_numpy_function() -> dict[Any, list[str]]:
    names: dict[Any, list[str]] = {}
    for name, value in vars(np).items():  # not getattr, which would import np.testing and the like
        if callable(value) and not isinstance(value, type) and not name.startswith("_"):
            names.setdefault(value, []).append(name)
    return names


class NumpyNamespace:
    """`kg.linalg` and the like: the functions of a module of NumPy's that can be traced."""

    def __init__(self, name: str, functions: dict[str, Callable[..., Any]]) -> None:
        self.__name__ = f"kernelgraph.{name}"
        self.__dict__.update(functions)

    def __getattr__(self, name: str) -> Any:
        kind = AttributeError if name.startswith("_") else MissingAttributeError
        raise kind(f"{self.__name__} has no attribute {name!r}{instead_of(name, {}, vars(self))}")

    def __repr__(self) -> str:
        return f"<namespace {self.__name__}>"


def _module_of_public_namespace(module: Any) -> NumpyNamespace:
    """The functions of a module of NumPy's."""
    short = module.__name__.removeprefix("numpy.")
    named = {name: getattr(module, name) for name in dir(module) if not name.startswith("_")}
    found = {
        n: _namespace_function_traced_or_eager(n, _traced_function_of_public_namespace(f), f)
        for n, f in named.items()
        if callable(f) and (f in FUNCTIONS or f in unsupported.EXPOSED)
    }
    return NumpyNamespace(short, found)


_ = tables  # which fill what is read here
_NUMPY_NAMES = _namespace_names_by_numpy_function()
NAMESPACE: dict[str, Any] = _functions_of_public_namespace()
NAMESPACE["linalg"] = _module_of_public_namespace(np.linalg)
NAMESPACE["fft"] = _module_of_public_namespace(np.fft)
for _name in ("fftfreq", "rfftfreq"):  # these take no array
    setattr(
        NAMESPACE["fft"],
        _name,
        _namespace_creation_traced_or_eager(_name, getattr(fourier, _name), fourier.fft_frequencies_function(_name)),
    )
NAMESPACE["lib"] = NumpyNamespace("lib", {})
NAMESPACE["lib"].stride_tricks = _module_of_public_namespace(np.lib.stride_tricks)

NAMESPACE["nn"] = NumpyNamespace(
    "nn",
    {n: _namespace_function_traced_or_eager(n, f, f) for n, f in nn.FUNCTIONS.items()}
    | {n: NAMESPACE[n] for n in nn.SHARED},
)

NAMESPACE["random"] = NumpyNamespace("random", random.FUNCTIONS)
NAMESPACE["debug"] = NumpyNamespace("debug", debug.FUNCTIONS)

NAMESPACE.update(loops.FUNCTIONS)

NAMESPACE.update(array_api_info.NAMES)
