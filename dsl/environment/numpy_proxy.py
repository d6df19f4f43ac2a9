"""NumPy as traced code sees it: array-creating functions give traced arrays, and so does what is made of plain data."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any, NoReturn

import numpy as np

from ...compiler.core.types import dtype_of
from ..core.errors import ShapeError, UnsupportedError, UserError
from ..functions import creation, manipulation
from ..functions.elementwise import choices
from ..functions.joining import concatenate, stack
from ..functions.sequences import gathered
from ..functions.views import atleast_1d, cast, contiguous, copy, in_order, ravel, reshape
from ..trace.dispatch import REFUSED, SPECIAL, call_function, given, public_name
from ..trace.items import as_element
from ..trace.operands import array_of, fresh_array, holds_array, is_traced, trace_of
from ..trace.trace import current
from ..trace.tracer import Tracer

OUTSIDE = "call it outside of the traced function"


class Function:
    """A function of NumPy's. Outside of a trace it is the function itself."""

    __slots__ = ("_ours", "_real")

    def __init__(self, real: Callable[..., Any], ours: Callable[..., Any] | None = None) -> None:
        """ours: what does it in a trace; by default NumPy itself, which finds traced arguments by its protocols."""
        self._real, self._ours = real, ours

    def __call__(self, *args: Any, **options: Any) -> Any:
        if current() is None:
            return self._real(*args, **options)
        if self._ours is not None:
            name = getattr(self._real, "__name__", "")
            return given(name, self._ours(*args, **options), args, options)
        try:
            if any(holds_array(x) for x in (*args, *options.values())):  # where NumPy's protocols do not look
                return constant(_of_lists(self._real, args, options))
            return constant(self._real(*args, **options))
        except TypeError as error:
            unaware = error.__traceback__ is not None and error.__traceback__.tb_next is None  # NumPy's C code
            if unaware and not isinstance(error, UserError) and is_traced([*args, *options.values()]):
                raise UnsupportedError(f"{public_name(self._real)} cannot be traced ({error}); {OUTSIDE}") from None
            raise

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._real, name)
        return Function(value) if callable(value) and not isinstance(value, type) else value

    def __getitem__(self, key: Any) -> Any:
        return constant(self._real[key]) if self._ours is None else self._ours(key)  # type: ignore[index]

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in Function.__slots__:
            raise UnsupportedError(f"{public_name(self._real)}.{name} cannot be assigned in a traced function")
        object.__setattr__(self, name, value)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(self._real)

    def __eq__(self, other: object) -> bool:
        return self._real is (other._real if type(other) is Function else other)

    def __hash__(self) -> int:
        return hash(self._real)

    def __repr__(self) -> str:
        return repr(self._real)

    def __reduce__(self) -> Any:
        return operator.attrgetter("_real"), (self,)


class Module:
    """NumPy itself, or a module of it."""

    def __init__(self, real: ModuleType) -> None:
        self.__dict__["_real"] = real

    def __getattr__(self, name: str) -> Any:
        value = inside(getattr(self._real, name))
        self.__dict__[name] = value  # asked once
        return value

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise UnsupportedError(f"{self._real.__name__}.{name} cannot be assigned in a traced function")

    def __dir__(self) -> list[str]:
        return dir(self._real)

    def __repr__(self) -> str:
        return repr(self._real)


class Random:
    """`np.random`, a generator of random numbers, or a function of one: while tracing it would draw once for all
    calls."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Random:
        return Random(f"{self._name}.{name}")

    def __call__(self, *args: Any, **options: Any) -> NoReturn:
        raise UnsupportedError(
            f"{self._name} would draw while tracing, once for all calls; pass the random numbers as an argument, or "
            "draw with kg.random, e.g. kg.random.normal(kg.random.key(seed), shape)"
        )


def inside(value: Any) -> Any:
    """What traced code gets in place of something of NumPy's; other things as they are."""
    try:
        found = _KNOWN.get(value)
    except TypeError:  # no hash
        return value
    if getattr(value, "__name__", "") == "numpy.random":
        return Random("np.random")
    if found is None and is_numpys(value):
        found = _KNOWN[value] = Module(value) if isinstance(value, ModuleType) else Function(value, OURS.get(value))
    return value if found is None else found


def outside(value: Any) -> Any:
    """What `inside` has replaced; other things as they are."""
    return value._real if type(value) in (Function, Module) else value


def is_numpys(value: Any) -> bool:
    """Whether it is a function, ufunc or module of NumPy's main namespace or of linalg or fft."""
    if isinstance(value, ModuleType):
        return value in (np, np.linalg, np.fft)
    if isinstance(value, type) or not callable(value):
        return False
    if isinstance(value, np.ufunc):
        return True
    module = getattr(value, "__module__", None) or ""
    return isinstance(value, _FUNCTIONS) and (module == "numpy" or module.startswith(("numpy.", "numpy_")))


_FUNCTIONS = tuple({type(f) for f in (np.sum, np.zeros, np.eye, np.isscalar, np.errstate.__call__)} - {type})


def _of_lists(real: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """real(*args, **options), where arguments are lists that hold traced arrays."""
    if isinstance(real, type(np.sum)):
        return call_function(real, args, options)
    if isinstance(getattr(real, "__self__", real), np.ufunc) and not any(isinstance(x, Tracer) for x in args):
        args = tuple(gathered(x) if holds_array(x) else x for x in args)
    return real(*args, **options)


def constant(result: Any) -> Any:
    """NumPy arrays in a result become traced values that can be assigned to."""
    if type(result) is np.ndarray:
        try:
            dtype_of(result.dtype)
        except TypeError:
            return result
        trace = current()
        return result if trace is None else Tracer(trace, trace.capture_constant(result))
    if type(result) is list:
        return [constant(r) for r in result]
    if type(result) is tuple:
        return tuple(map(constant, result))
    if isinstance(result, tuple) and hasattr(result, "_fields"):
        return type(result)(*map(constant, result))
    return result


# what makes arrays


def _array(
    object: Any,
    dtype: Any = None,
    *,
    copy: bool | None = True,
    order: Any = "K",
    subok: bool = False,
    ndmin: int = 0,
    ndmax: int = 0,
    like: Any = None,
) -> Tracer:
    object = _listed(object)
    found = gathered(object, dtype)
    if copy is False:
        _refuse_a_copy(object, found)
    if found.ndim < ndmin:
        found = reshape(found, (1,) * (ndmin - found.ndim) + found.shape)
    if copy or not _is_array(object):
        return Tracer(found._trace, found._value, layout=in_order(order, found))
    return contiguous(found, order)


def _listed(x: Any) -> Any:
    """Nested sequences that hold traced values, as lists; what stands for an array, as that array."""
    if type(x) in SPECIAL:
        return array_of(x)
    if isinstance(x, (list, tuple)):
        return [_listed(i) for i in x] if is_traced(x) else x
    return list(x) if isinstance(x, range) else x


def traced_array(
    a: Any, dtype: Any = None, order: Any = None, *, device: Any = None, copy: bool | None = None, like: Any = None
) -> Tracer:
    """`np.asarray` of anything, traced."""
    a = _listed(a)
    found = gathered(a, dtype)
    same = _is_array(a) and a._value.number == found._value.number
    if copy is False:
        _refuse_a_copy(a, found)
    if copy or not same:
        return Tracer(found._trace, found._value, layout=in_order(order, found))
    x = array_of(a)
    if getattr(x._step, "flat", False):  # which is made an array: a view of what is contiguous
        x = ravel(x._parent)
    return contiguous(x, order)


def _refuse_a_copy(given: Any, found: Tracer) -> None:
    """Raises ShapeError where copy=False is asked for and what was given is no array, or one of another dtype."""
    if not (_is_array(given) or type(given) is np.ndarray) or given.dtype != found.dtype:
        raise ShapeError("unable to avoid a copy while creating an array as requested; write copy=None")


def _is_array(x: Any) -> bool:
    """Whether it is a traced array that NumPy need not copy, as it has to a scalar."""
    return isinstance(x, Tracer) and not isinstance(x, np.generic)


def _ascontiguousarray(a: Any, dtype: Any = None, *, like: Any = None) -> Tracer:
    found: Tracer = atleast_1d(traced_array(a, dtype, "C"))
    return found


def _asfortranarray(a: Any, dtype: Any = None, *, like: Any = None) -> Tracer:
    found: Tracer = atleast_1d(traced_array(a, dtype, "F"))
    return found


def _require(a: Any, dtype: Any = None, requirements: Any = None, *, like: Any = None) -> Tracer:
    asked = {str(r).upper()[0] for r in ([requirements] if isinstance(requirements, str) else requirements or ())}
    if asked & {"C", "F"} == {"C", "F"}:
        raise ShapeError("Cannot specify both 'C' and 'F' order")
    found = traced_array(a, dtype, "F" if "F" in asked else "C" if "C" in asked else None)
    return copy(found) if "O" in asked and found._parent is not None else found


def _ndarray(
    shape: Any, dtype: Any = float, buffer: Any = None, offset: int = 0, strides: Any = None, order: Any = None
) -> Tracer:
    """np.ndarray(shape, dtype): np.empty."""
    if buffer is not None or strides is not None:
        raise UnsupportedError("np.ndarray of a buffer cannot be traced; write slices, or x.view(dtype)")
    return creation.empty(shape, dtype, order=order or "C")


def _copy(a: Any, order: Any = "K", subok: bool = False) -> Tracer:
    return copy(gathered(_listed(a)), order)


def _fromiter(iter: Iterable[Any], dtype: Any, count: int = -1, *, like: Any = None) -> Tracer:
    items = [x for _, x in zip(range(count), iter)] if count >= 0 else list(iter)  # noqa: B905
    return gathered(items, dtype) if items else creation.zeros((0,), dtype)


def _filled(make: Callable[..., Tracer]) -> Callable[..., Tracer]:
    def function(shape: Any, dtype: Any = None, order: Any = "C", *, device: Any = None, like: Any = None) -> Tracer:
        return make(shape, dtype, order=order or "C")

    return function


def _full(
    shape: Any, fill_value: Any, dtype: Any = None, order: Any = "C", *, device: Any = None, like: Any = None
) -> Tracer:
    value = gathered(fill_value) if isinstance(fill_value, (list, tuple)) else fill_value
    return creation.full(shape, value, dtype, order=order or "C")


def _like(make: Callable[..., Tracer]) -> Callable[..., Tracer]:
    def function(
        a: Any, dtype: Any = None, order: Any = "K", subok: bool = True, shape: Any = None, *, device: Any = None
    ) -> Tracer:
        return make(gathered(a), dtype, order, shape=shape)

    return function


def _full_like(
    a: Any,
    fill_value: Any,
    dtype: Any = None,
    order: Any = "K",
    subok: bool = True,
    shape: Any = None,
    *,
    device: Any = None,
) -> Tracer:
    return creation.full_like(gathered(a), fill_value, dtype, order, shape=shape)


def _arange(*args: Any, **options: Any) -> Tracer:
    named = [options.pop(name, None) for name in ("start", "stop", "step")]
    start, stop, step = (*args[:3], *named[len(args[:3]) :])
    dtype = options.pop("dtype", args[3] if len(args) > 3 else None)
    if start is None or (stop is None and len(args) == 0):
        start, stop = (0 if start is None else start), stop
    return creation.arange(start, stop, 1 if step is None else step, dtype=dtype)


def _linspace(start: Any, stop: Any, num: Any = 50, *args: Any, **options: Any) -> Any:
    options.pop("device", None)
    start, stop = (gathered(x) if isinstance(x, (list, tuple)) else x for x in (start, stop))
    return creation.linspace(start, stop, num, *args, **options)


def _eye(
    N: Any, M: Any = None, k: Any = 0, dtype: Any = float, order: Any = "C", *, device: Any = None, like: Any = None
) -> Tracer:
    found = creation.eye(N, M, k=k, dtype=dtype)
    found._layout = in_order(order or "C")
    return found


def _isscalar(element: Any) -> bool:
    if isinstance(element, Tracer):
        return isinstance(element, np.generic)
    return bool(np.isscalar(element))


def _shape(a: Any) -> tuple[int, ...]:
    return gathered(a).shape if is_traced(a) else np.shape(a)


def _ndim(a: Any) -> int:
    return len(_shape(a))


def _size(a: Any, axis: Any = None) -> int:
    found = gathered(a)
    return found.size if axis is None else found.shape[axis]


def _grid(dense: bool) -> Callable[[Any], Any]:
    """`np.mgrid[...]` and `np.ogrid[...]`."""

    def function(key: Any) -> Any:
        if not isinstance(key, tuple):
            return _range(key)
        axes = [_range(k) for k in key]
        dtype = np.result_type(*(a.dtype for a in axes))
        grids = creation.meshgrid(*(cast(a, dtype, copy=False) for a in axes), sparse=not dense, indexing="ij")
        return stack(grids) if dense else tuple(grids)

    return function


def _range(key: slice) -> Tracer:
    start = 0 if key.start is None else key.start
    step = 1 if key.step is None else key.step
    if isinstance(step, complex):  # so many points, the last one included
        return creation.linspace(start, key.stop, int(abs(step)))  # type: ignore[no-any-return]
    return creation.arange(start, key.stop, step)


def _row(key: Any) -> Any:
    """`np.r_[...]` of arrays, numbers and ranges, along the first axis."""
    entries = key if isinstance(key, tuple) else (key,)
    if not is_traced(entries) or any(isinstance(e, str) for e in entries):
        return constant(np.r_[key])
    parts = [_range(e) if isinstance(e, slice) else e for e in entries]
    return concatenate([atleast_1d(p) for p in _of_one_dtype(parts)])


def _of_one_dtype(entries: list[Any]) -> list[Tracer]:
    """Arrays, in the dtype that they have together: a Python number among them takes it, or does not fit."""
    parts, dtype = choices(*(gathered(e) if isinstance(e, (list, tuple)) else e for e in entries))
    trace = trace_of(*parts)
    return [
        p if type(p) is Tracer else fresh_array(as_element(trace, e, dtype))
        for p, e in zip(parts, entries, strict=True)
    ]


def _column(key: Any) -> Any:
    """`np.c_[...]`: arrays as columns."""
    entries = key if isinstance(key, tuple) else (key,)
    if not is_traced(entries):
        return constant(np.c_[key])
    parts = _of_one_dtype([_range(e) if isinstance(e, slice) else e for e in entries])
    return concatenate([reshape(p, (p.size, 1)) if p.ndim < 2 else p for p in parts], -1)


OURS: dict[Any, Callable[..., Any]] = {
    np.array: _array,
    np.asarray: traced_array,
    np.asanyarray: traced_array,
    np.ascontiguousarray: _ascontiguousarray,
    np.asfortranarray: _asfortranarray,
    np.require: _require,
    np.copy: _copy,
    np.fromiter: _fromiter,
    np.zeros: _filled(creation.zeros),
    np.ones: _filled(creation.ones),
    np.empty: _filled(creation.empty),
    np.full: _full,
    np.zeros_like: _like(creation.zeros_like),
    np.ones_like: _like(creation.ones_like),
    np.empty_like: _like(creation.empty_like),
    np.full_like: _full_like,
    np.arange: _arange,
    np.linspace: _linspace,
    np.eye: _eye,
    np.identity: manipulation.identity,
    np.indices: manipulation.indices,
    np.tri: manipulation.tri,
    np.fromfunction: manipulation.fromfunction,
    np.isscalar: _isscalar,
    np.shape: _shape,
    np.ndim: _ndim,
    np.size: _size,
}


def _refused(kind: type) -> Callable[..., Any]:
    """A class of NumPy's that looks at values: where a trace may be split it does."""

    def function(*args: Any, **options: Any) -> Any:
        trace = current()
        if trace is not None and trace.split is None and is_traced([*args, *options.values()]):
            raise UnsupportedError(f"np.{kind.__name__} cannot be traced: {REFUSED[kind]}")
        return kind(*args, **options)

    return function


_KNOWN: dict[Any, Any] = {}  # what `inside` has made; by identity, as NumPy's functions are compared
for _name, _object, _ours in (
    ("mgrid", np.mgrid, _grid(True)),
    ("ogrid", np.ogrid, _grid(False)),
    ("r_", np.r_, _row),
    ("c_", np.c_, _column),
):
    _KNOWN[_object] = Function(_object, _ours)  # type: ignore[arg-type]
for _kind in (np.nditer, np.ndenumerate):
    _KNOWN[_kind] = Function(_kind, _refused(_kind))
