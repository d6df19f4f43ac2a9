"""The stand-ins that a traced function gets for its arrays and numbers; each operation on them becomes a node."""

from __future__ import annotations

import operator
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn, TypeVar

import numpy as np

from ..compiler.graph import Scalar, Value
from ..compiler.types import ArrayType, dtype_of, kind_of
from .errors import DTypeError, EscapedValueError, ShapeError, TraceError, UnsupportedError, nearest
from .trace import Trace, current

Implementation = Callable[..., Any]
F = TypeVar("F", bound=Implementation)

FUNCTIONS: dict[Any, Implementation] = {}  # NumPy's function -> ours; filled by `implements`
METHODS: dict[str, Implementation] = {}  # ndarray's methods -> ours
UFUNCS: dict[str, Callable[..., Any]] = {}  # what a call, a reduction, ... of a ufunc does; filled by `elementwise`


def implements(*functions: Any, method: str | bool = False) -> Callable[[F], F]:
    """Registers an implementation of NumPy functions, and of the method of the same name (or of the given one)."""

    def register(implementation: F) -> F:
        for function in functions:
            FUNCTIONS[function] = implementation
        if method:
            METHODS[method if isinstance(method, str) else implementation.__name__] = implementation
        return implementation

    return register


class Traced:
    """What arrays and numbers have in common: NumPy's protocols."""

    __slots__ = ()

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        handler = UFUNCS.get(method)
        if handler is None:
            raise UnsupportedError(
                f"np.{ufunc.__name__}.{method} cannot be traced; write it with whole-array operations"
            )
        return handler(ufunc, *inputs, **options)

    def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> Any:
        return call_function(function, args, options)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("shape", "dtype", "strides", "real", "imag", "flat", "T"):
            raise TraceError(f"the {name} of a traced value cannot be assigned; write a new value, e.g. x.reshape(...)")
        object.__setattr__(self, name, value)


def call_function(function: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Our implementation of a NumPy function. Raises UnsupportedError, naming the nearest supported one."""
    implementation = FUNCTIONS.get(function)
    name = public_name(function)
    if implementation is None:
        near = nearest(name, supported_names())
        raise UnsupportedError(f"{name} cannot be traced{near}; or call it outside of the traced function")
    check_options(implementation, name, options)
    return implementation(*args, **options)


def check_options(implementation: Implementation, name: str, options: Iterable[str]) -> None:
    """Raises UnsupportedError for a keyword that the implementation does not have."""
    code = getattr(implementation, "__code__", None)
    if code is None or code.co_flags & 0x08:
        return
    known = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    for option in options:
        if option not in known:
            raise UnsupportedError(
                f"the argument {option}= of {name} cannot be traced; supported are {', '.join(known)}"
            )


def public_name(function: Any) -> str:
    module = getattr(function, "__module__", None) or "numpy"
    return f"{module.replace('numpy', 'np', 1)}.{getattr(function, '__name__', function)}"


def supported_names() -> list[str]:
    return sorted({public_name(f) for f in FUNCTIONS} | {f"np.{name}" for name in METHODS if hasattr(np, name)})


class Tracer(Traced):
    """Stands for an array. It has a shape and a dtype, and no value until the traced function has returned."""

    __slots__ = ("__weakref__", "_owner", "_sources", "_trace", "_value", "_views")

    def __init__(
        self,
        trace: Trace,
        value: Value,
        owner: Tracer | str | None = None,
        sources: frozenset[int] | None = None,
    ) -> None:
        """owner: None if the memory is its own, the array that it is a view of, or what else it belongs to.
        sources: the numbers of the call that alone decide the value, if that is so."""
        self._trace = trace
        self._value = value
        self._owner = owner
        self._sources = sources
        self._views: list[weakref.ref[Tracer]] = []
        if isinstance(owner, Tracer):
            owner._views.append(weakref.ref(self))

    # what is known while tracing

    @property
    def shape(self) -> tuple[int, ...]:
        return self._value.type.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._value.type.dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return self._value.type.size

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self._value.type.nbytes

    @property
    def T(self) -> Any:
        return METHODS["transpose"](self)

    @property
    def mT(self) -> Any:
        return METHODS["swapaxes"](self, -1, -2)

    @property
    def real(self) -> Any:
        return np.real(self)

    @property
    def imag(self) -> Any:
        return np.imag(self)

    @property
    def flat(self) -> Any:
        return METHODS["ravel"](self)

    def __len__(self) -> int:
        if not self.shape:
            raise DTypeError("a 0-d array has no length")
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        if not self.shape:
            raise DTypeError("a 0-d array cannot be iterated over; use it as it is")
        return (self[i] for i in range(self.shape[0]))

    def __getitem__(self, key: Any) -> Any:
        return METHODS["__getitem__"](self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        raise TraceError(
            "assigning to elements of a traced value is not supported; write "
            "x = np.where(mask, new, x), or np.concatenate([...]) of the parts"
        )

    def __getattr__(self, name: str) -> Any:
        implementation = METHODS.get(name)
        if implementation is not None:
            return _Method(implementation, self, name)
        if name.startswith("__") or not hasattr(np.ndarray, name):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        raise UnsupportedError(f"the array attribute .{name} cannot be traced{nearest(name, METHODS)}")

    # what has no answer while tracing

    def _no_value(self, what: str, instead: str) -> NoReturn:
        check_alive(self)
        if self._sources:
            raise self._trace.need(self._sources)
        raise TraceError(f"a traced {self._value.type} has no value yet, so it {what}; {instead}")

    def __bool__(self) -> bool:
        self._no_value("cannot decide an if, while, and, or, not", "write np.where(condition, a, b), or &, |, ~")

    def __int__(self) -> int:
        self._no_value("is no Python int", "write x.astype(np.int64), or return it and call int() on the result")

    def __index__(self) -> int:
        self._no_value(
            "cannot be an index, a length or a loop count", "pass that number as a Python int argument of the function"
        )

    def __float__(self) -> float:
        self._no_value("is no Python float", "write x.astype(np.float64), or return it and call float() on the result")

    def __complex__(self) -> complex:
        self._no_value("is no Python complex", "write x.astype(np.complex128)")

    def item(self, *args: Any) -> Any:
        self._no_value("has no .item()", "use the value as it is, or return it and call .item() on the result")

    def tolist(self) -> Any:
        self._no_value("has no .tolist()", "return it and call .tolist() on the result")

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        self._no_value(
            "cannot become a NumPy array", "use it as it is; np.stack joins traced values, np.astype converts them"
        )

    def __hash__(self) -> int:
        raise TraceError("a traced value cannot be a dict key or a member of a set; use a list")

    def __contains__(self, value: Any) -> bool:
        self._no_value("cannot decide `in`", "write (x == value).any() and np.where")

    def __format__(self, spec: str) -> str:
        return repr(self)

    def __repr__(self) -> str:
        return f"<traced {self._value.type}>"

    def __reduce__(self) -> NoReturn:
        raise TraceError("a traced value cannot be pickled; return it from the traced function")

    def __copy__(self) -> Any:
        return METHODS["copy"](self)

    def __deepcopy__(self, memo: Any) -> Any:
        return METHODS["copy"](self)


class _Method:
    """`x.sum`, ready to be called."""

    __slots__ = ("_implementation", "_name", "_self")

    def __init__(self, implementation: Implementation, self_: Tracer, name: str) -> None:
        self._implementation, self._self, self._name = implementation, self_, name

    def __call__(self, *args: Any, **options: Any) -> Any:
        check_options(self._implementation, f".{self._name}()", options)
        return self._implementation(self._self, *args, **options)


class TracedNumber(Traced):
    """Stands for a Python number of the call. `isinstance` sees int, float or complex; asking for its value restarts
    the trace with the value known. Arithmetic among numbers is Python's own and runs on the host."""

    __slots__ = ("_name", "_number", "_sources", "_trace")

    def __init__(self, trace: Trace, name: str, number: Any, sources: frozenset[int]) -> None:
        """number: the value in the call that is traced; only its type may decide anything."""
        self._trace = trace
        self._name = name
        self._number = number
        self._sources = sources

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(self._number)

    def _need(self) -> BaseException:
        check_alive(self)
        return self._trace.need(self._sources)

    def __getattr__(self, name: str) -> Any:
        if hasattr(type(self._number), name):
            raise self._need()
        raise AttributeError(f"{type(self._number).__name__!r} object has no attribute {name!r}")

    @property
    def real(self) -> Any:
        return self._attribute("real")

    @property
    def imag(self) -> Any:
        return self._attribute("imag")

    def conjugate(self) -> Any:
        return self._attribute("conjugate()")

    def _attribute(self, name: str) -> Any:
        value = getattr(self._number, name.removesuffix("()"))
        return self._derived(f"{self._name}.{name}", value() if callable(value) else value, self._sources)

    def _derived(self, expression: str, number: Any, sources: frozenset[int]) -> Any:
        check_alive(self)
        return TracedNumber(self._trace, self._trace.host.statement(expression), number, sources)

    def __bool__(self) -> bool:
        raise self._need()

    def __int__(self) -> int:
        raise self._need()

    def __float__(self) -> float:
        raise self._need()

    def __complex__(self) -> complex:
        raise self._need()

    def __index__(self) -> int:
        if not isinstance(self._number, int):
            raise TypeError(f"{type(self._number).__name__!r} object cannot be interpreted as an integer")
        raise self._need()

    def __round__(self, digits: Any = None) -> Any:
        raise self._need()

    def __trunc__(self) -> Any:
        raise self._need()

    def __floor__(self) -> Any:
        raise self._need()

    def __ceil__(self) -> Any:
        raise self._need()

    def __hash__(self) -> int:
        raise self._need()

    def __str__(self) -> str:
        raise self._need()

    def __format__(self, spec: str) -> str:
        raise self._need()

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise self._need()

    def __reduce__(self) -> Any:
        raise self._need()

    def __repr__(self) -> str:
        return f"<traced {type(self._number).__name__}>"


def is_number(x: Any) -> bool:
    """Whether `x` is a TracedNumber, whose `__class__` says otherwise."""
    return type(x) is TracedNumber


def length(trace: Trace, n: int) -> TracedNumber:
    """A number that comes from a shape, as an argument of the kernels: their text serves all sizes."""
    return TracedNumber(trace, trace.host.constant(n), n, frozenset())


def check_alive(x: Tracer | TracedNumber) -> Trace:
    """The trace in progress, which `x` belongs to. Raises EscapedValueError."""
    trace = x._trace
    if trace is not current():
        what = repr(x)
        if not trace.alive:
            raise EscapedValueError(
                f"{what} escaped the trace that made it; return it from the traced function instead of "
                "keeping it in a global, a closure or an attribute"
            )
        raise EscapedValueError(f"{what} belongs to another trace in progress; pass it as an argument")
    return trace


def trace_of(*args: Any) -> Trace:
    """The trace that the traced values among `args` belong to, else the trace in progress."""
    for arg in args:
        if isinstance(arg, Tracer) or type(arg) is TracedNumber:
            return check_alive(arg)
    trace = current()
    if trace is None:
        raise TraceError("there is no trace in progress")
    return trace


def operand(x: Any) -> Value | Scalar | np.generic:
    """What the builder takes: a node, or a number that is known. Arrays and lists are captured.

    Raises DTypeError for what cannot be an array of numbers."""
    if isinstance(x, Tracer):
        check_alive(x)
        return x._value
    if type(x) is TracedNumber:
        check_alive(x)
        if isinstance(x._number, bool):
            raise x._need()
        return x._trace.scalar(x._name, type(x._number))
    if isinstance(x, (bool, int, float, complex, np.generic)) and not isinstance(x, (np.str_, np.bytes_, np.void)):
        if isinstance(x, np.generic):
            checked_dtype(x.dtype)
            return x
        return x
    array = host_array(x)
    return trace_of().capture(array)


def host_array(x: Any) -> np.ndarray[Any, Any]:
    """Anything array-like that is not traced as a NumPy array of a supported dtype in native byte order."""
    if isinstance(x, str) or x is None or isinstance(x, (dict, set, bytes)) or callable(x):
        raise DTypeError(f"{_describe(x)} is no array of numbers; pass numbers or arrays")
    if isinstance(x, (list, tuple)) and any(isinstance(i, Tracer) for i in x):
        raise TraceError("a list of traced values is no array; write np.stack([...]), or np.concatenate([...])")
    array = np.asarray(x)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    checked_dtype(array.dtype)
    return array


def _describe(x: Any) -> str:
    text = repr(x)
    return text if len(text) < 40 else f"a {type(x).__name__}"


def checked_dtype(dtype: Any) -> np.dtype[Any]:
    """The supported dtype that `dtype` names. Raises DTypeError."""
    try:
        return dtype_of(dtype)
    except TypeError as error:
        raise DTypeError(str(error)) from None


def value_of(x: Any) -> Value:
    """The operand as a node; a number that is known becomes a 0-d constant of its own dtype."""
    found = operand(x)
    return found if isinstance(found, Value) else trace_of().builder.value(found)


def array_of(x: Any) -> Tracer:
    """Anything array-like as a traced array (0-d for numbers, with NumPy's default dtype)."""
    if isinstance(x, Tracer):
        check_alive(x)
        return x
    trace = trace_of(x)
    value = value_of(x)
    if value.weak is not None:
        value = Value(value.number, value.type)
    return Tracer(trace, value, "capture", sources_of(x))


def sources_of(*args: Any) -> frozenset[int] | None:
    """The numbers of the call that alone decide all `args`, if that is so."""
    found: frozenset[int] = frozenset()
    for arg in args:
        if isinstance(arg, Tracer) or type(arg) is TracedNumber:
            if arg._sources is None:
                return None
            found |= arg._sources
        elif not isinstance(arg, (bool, int, float, complex, np.generic, ArrayType)):
            return None
    return found


def fresh(value: Value, *args: Any) -> Tracer:
    """A new array; args: what it was made from."""
    return Tracer(trace_of(*args), value, None, sources_of(*args))


def view(value: Value, of: Tracer) -> Tracer:
    """An array that in NumPy may share memory with `of`."""
    root = of
    while isinstance(root._owner, Tracer):
        root = root._owner
    owner = root if root._owner is None else root._owner
    return Tracer(of._trace, value, owner, of._sources)


def assign(target: Any, result: Tracer) -> Tracer:
    """`target[...] = result` on an array that nobody sees under another name. Raises TraceError otherwise."""
    if not isinstance(target, Tracer):
        raise TraceError("a traced result cannot be written into an untraced array; use the result itself")
    check_alive(target)
    if target._owner is not None or any(view() is not None for view in target._views):
        what = "an argument" if type(target._owner) is str else "an array that has views or is one"
        raise TraceError(f"assigning in place to {what} is not supported; write x = x + ... with a new value")
    if result.shape != target.shape:
        raise ShapeError(f"a result of shape {result.shape} cannot be written in place into shape {target.shape}")
    if not np.can_cast(result.dtype, target.dtype, "same_kind"):
        raise DTypeError(
            f"a {result.dtype} result cannot be written in place into a {target.dtype} array; "
            f"write x = x.astype(np.{result.dtype}) first, or a new value"
        )
    target._value = target._trace.builder.cast(result._value, target.dtype)
    target._sources = result._sources
    return target


def is_integer(dtype: np.dtype[Any]) -> bool:
    return kind_of(dtype) in "iu"


def to_index(x: Any, what: str) -> int:
    """A Python int. Raises DTypeError for anything else."""
    try:
        return operator.index(x)
    except TypeError:
        raise DTypeError(f"{what} must be an int, not {_describe(x)}") from None
