"""NumPy, and what is known of SciPy, as traced code sees it: what makes an array gives a traced one."""

from __future__ import annotations

import operator
from collections.abc import Callable
from types import ModuleType
from typing import Any, NoReturn

import numpy as np

from ..core.errors import UnsupportedError, UserError
from ..functions.numpy_creation import TRACED_CREATION, TRACED_OBJECTS
from ..functions.scipy_functions import traced_function_of_scipy
from ..functions.sequences import array_of_nested_list
from ..trace.dispatch import NumpyProtocols, apply_view_rule_of_numpy, call_function, public_numpy_name
from ..trace.numpy_fallback import numpy_result_as_traced_constant
from ..trace.operands import holds_traced_array, is_traced
from ..trace.trace import current_trace, loop_recorder_of_trace
from ..trace.tracer import Tracer
from .outside_reads import OutsideProxy, is_outside

OUTSIDE = "call it outside of the traced function"


class NumpyFunctionProxy:
    """A function of NumPy's. Outside of a trace it is the function itself."""

    __slots__ = ("_ours", "_real")

    def __init__(self, real: Callable[..., Any], ours: Callable[..., Any] | None = None) -> None:
        """ours: what does it in a trace; by default NumPy itself, which finds traced arguments by its protocols."""
        self._real, self._ours = real, ours

    def __call__(self, *args: Any, **options: Any) -> Any:
        if current_trace() is None:
            return self._real(*args, **options)
        recorder = loop_recorder_of_trace()
        if recorder is not None:
            return recorder.call_function(self._real, args, options, self._ours)
        if self._ours is not None:
            name = getattr(self._real, "__name__", "")
            return apply_view_rule_of_numpy(name, self._ours(*args, **options), args, options)
        try:
            if any(holds_traced_array(x) for x in (*args, *options.values())):  # where NumPy's protocols do not look
                return numpy_result_as_traced_constant(_call_numpy_proxy_on_lists(self._real, args, options))
            result = self._real(*args, **options)
            return result if isinstance(result, NumpyProtocols) else numpy_result_as_traced_constant(result)
        except (TypeError, ValueError) as error:
            unaware = error.__traceback__ is not None and error.__traceback__.tb_next is None  # NumPy's C code
            met = is_traced([*args, *options.values()]) if isinstance(error, TypeError) else "__array__" in str(error)
            if unaware and not isinstance(error, UserError) and met:
                raise UnsupportedError(
                    f"{public_numpy_name(self._real)} cannot be traced ({error}); {OUTSIDE}"
                ) from None
            raise

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._real, name)
        return NumpyFunctionProxy(value) if callable(value) and not isinstance(value, type) else value

    def __getitem__(self, key: Any) -> Any:
        return numpy_result_as_traced_constant(self._real[key]) if self._ours is None else self._ours(key)  # type: ignore[index]

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in NumpyFunctionProxy.__slots__:
            raise UnsupportedError(
                f"{public_numpy_name(self._real)}.{name} cannot be assigned in a traced function", needs_values=False
            )
        object.__setattr__(self, name, value)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(self._real)

    def __eq__(self, other: object) -> bool:
        return self._real is (other._real if type(other) is NumpyFunctionProxy else other)

    def __hash__(self) -> int:
        return hash(self._real)

    def __repr__(self) -> str:
        return repr(self._real)

    def __reduce__(self) -> Any:
        return operator.attrgetter("_real"), (self,)

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: Any) -> Any:
        return self


class TracedErrorState(np.errstate):
    """`np.errstate`, which changes nothing in kernels: what asks for more than silence is refused."""

    __slots__ = ()

    def __init__(self, **options: Any) -> None:
        asked = sorted({str(v) for v in options.values()} & {"raise", "call", "log"})
        if asked:
            raise UnsupportedError(
                f"np.errstate(...={asked[0]!r}) changes nothing in kernels, which neither raise nor warn; take it out, "
                "or write kg.debug.check_finite(x)"
            )
        super().__init__(**options)


class NumpyModuleProxy:
    """NumPy itself, or a module of it."""

    def __init__(self, real: ModuleType) -> None:
        self.__dict__["_real"] = real

    def __getattr__(self, name: str) -> Any:
        value = numpy_proxy_of(getattr(self._real, name))
        self.__dict__[name] = value  # asked once
        return value

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise UnsupportedError(
            f"{self._real.__name__}.{name} cannot be assigned in a traced function", needs_values=False
        )

    def __dir__(self) -> list[str]:
        return dir(self._real)

    def __repr__(self) -> str:
        return repr(self._real)


def numpy_proxy_of(value: Any) -> Any:
    """What traced code gets in place of something of NumPy's; other things as they are."""
    try:
        found = _KNOWN.get(value)
    except (TypeError, ValueError):  # no hash
        return value
    if getattr(value, "__name__", "") == "numpy.random":
        return OutsideProxy("np.random", value)
    if found is None and is_outside(type(value), value):
        return OutsideProxy(f"np.{value.__name__}", value)
    if found is None and is_numpys(value):
        is_module = isinstance(value, ModuleType)
        found = _KNOWN[value] = (
            NumpyModuleProxy(value)
            if is_module
            else NumpyFunctionProxy(value, TRACED_CREATION.get(value) or traced_function_of_scipy(value))
        )
    return value if found is None else found


def original_behind_numpy_proxy(value: Any) -> Any:
    """What `numpy_proxy_of` has replaced; other things as they are."""
    return value._real if type(value) in (NumpyFunctionProxy, NumpyModuleProxy) else value


def is_numpys(value: Any) -> bool:
    """Whether it is a function, ufunc or module of NumPy, its linalg or fft, or such of `scipy.special`."""
    if isinstance(value, ModuleType):
        return value in (np, np.linalg, np.fft) or value.__name__ in ("scipy", "scipy.special")
    if isinstance(value, type) or not callable(value):
        return False
    if isinstance(value, np.ufunc):
        return True
    module = getattr(value, "__module__", None) or ""
    if module.startswith("scipy.special."):
        return traced_function_of_scipy(value) is not None
    return isinstance(value, _FUNCTIONS) and (module == "numpy" or module.startswith(("numpy.", "numpy_")))


_FUNCTIONS = tuple({type(f) for f in (np.sum, np.zeros, np.eye, np.isscalar, np.errstate.__call__)} - {type})


def _call_numpy_proxy_on_lists(real: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """real(*args, **options), where arguments are lists that hold traced arrays."""
    if isinstance(real, type(np.sum)):
        return call_function(real, args, options)
    if isinstance(getattr(real, "__self__", real), np.ufunc) and not any(isinstance(x, Tracer) for x in args):
        args = tuple(array_of_nested_list(x) if holds_traced_array(x) else x for x in args)
    return real(*args, **options)


# what `numpy_proxy_of` has made; by identity, as NumPy's functions are compared
_KNOWN: dict[Any, Any] = {value: NumpyFunctionProxy(value, ours) for value, ours in TRACED_OBJECTS.items()}
_KNOWN[np.errstate] = TracedErrorState
