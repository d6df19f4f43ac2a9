"""The stand-ins that a traced function gets for its arrays and numbers; each operation on them becomes a node."""

from __future__ import annotations

import math
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, Protocol

import numpy as np

from ...compiler.graph.builder import GraphBuilder
from ...compiler.graph.graph import Value
from ..core.context import context
from ..core.errors import (
    DTypeError,
    EscapedValueError,
    MissingAttributeError,
    ShapeError,
    TraceError,
    UnsupportedError,
    is_own_file,
    nearest_name_hint,
)
from ..core.foreign_names import FOREIGN_ATTRIBUTES, instead_of
from ..core.spec import Host
from .concrete_values import concrete_value, constant_value_of_traced_node
from .dispatch import (
    ATTRIBUTES,
    METHODS,
    Implementation,
    NumpyProtocols,
    apply_view_rule_of_numpy,
    check_options_of_numpy_call,
)
from .memory_layout import MemoryLayout
from .trace import Trace, UndecidedValue

SCALAR = "scalar"  # the owner of what NumPy makes a scalar of: it never changes
CAPTURED = "captured"  # the owner of arrays that are no arguments


class TracerViewStepProtocol(Protocol):
    """One way to look at an array: see `aliasing`."""

    def apply(self, builder: GraphBuilder, value: Value) -> Value: ...


class Tracer(NumpyProtocols):
    """Stands for an array. It has a shape and a dtype, and no value until the traced function has returned."""

    __slots__ = ("__weakref__", "_base", "_depth", "_held", "_layout", "_owner", "_parent", "_step", "_trace", "_views")
    _settable = frozenset(["shape", "real", "imag", "flat"])
    _trace: Trace
    _depth: int
    _held: Value
    _layout: MemoryLayout | None
    _owner: int | str | None
    _parent: Tracer | None
    _step: Any  # how it looks at that, or at arrays of which a value has chosen one: see `aliasing`
    _base: Any
    _views: list[weakref.ref[Tracer]]

    def __init__(
        self,
        trace: Trace,
        value: Value,
        owner: int | str | None = None,
        parent: Tracer | None = None,
        step: TracerViewStepProtocol | None = None,
        layout: MemoryLayout | None = None,
    ) -> None:
        """owner: whose memory it is in: None for its own, the leaf of an argument, SCALAR or CAPTURED.
        parent, step: what it is a view of, and which. layout: of what is no view, where NumPy's is known."""
        put = object.__setattr__  # past the refusal of users' attributes
        put(self, "_trace", trace)
        put(self, "_depth", trace.depth)
        put(self, "_held", value)  # of a view: what it was when the parent was node number _base
        put(self, "_owner", owner)
        put(self, "_layout", layout)
        put(self, "_parent", parent)
        put(self, "_step", step)
        put(self, "_base", -1 if parent is None else parent._value.number)
        put(self, "_views", [])  # of a root: weak references to all views of it and of its views
        if parent is None:
            trace.register_array_owner(self)
            if trace.journal is not None:
                trace.journal.made[id(self)] = self

    @property
    def _value(self) -> Value:
        """The node that it stands for now: an assignment to what a view looks at changes the view."""
        if self._parent is not None and self._step is not None:
            value = self._parent._value
            if value.number != self._base:
                self._held, self._base = self._step.apply(self._trace.builder, value), value.number
        elif self._step is not None:
            versions = self._step.versions()
            if versions != self._base:
                self._held, self._base = self._step.chosen_value(self._trace.builder), versions
        return self._held

    # what is known while tracing

    @property
    def shape(self) -> tuple[int, ...]:
        held = self._held
        if (held.weak or held.others) and is_asked_by_traced_code():
            self._refuse_attribute_of_python_number("shape")
        return held.type.shape

    @shape.setter
    def shape(self, shape: Any) -> None:
        ATTRIBUTES["shape"](self, shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        held = self._held
        if (held.weak or held.others) and is_asked_by_traced_code():
            self._refuse_attribute_of_python_number("dtype")
        if not self._trace.native and not is_own_file(sys._getframe(1).f_code.co_filename):
            self._trace.require_native_byte_order()
        return held.type.dtype

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        held = self._held
        if held.others and is_asked_by_traced_code():
            return self.class_for_traced_code()
        return np.ndarray if self._owner != SCALAR else held.weak or held.type.dtype.type

    def class_for_traced_code(self) -> type:
        """`type(x)` of what it stands for. Raises TraceError where values decide that."""
        if self._held.others:
            raise TraceError("whether a number is Python's or NumPy's is decided by a traced value")
        return self.__class__

    def _refuse_attribute_of_python_number(self, name: str) -> NoReturn:
        """Raises what Python raises for an attribute that arrays have, and UnsupportedError for its numbers' own."""
        kind = self._held.weak or self.dtype.type
        if self._held.others or hasattr(kind, name):
            raise UnsupportedError(f".{name} of a number that a traced value decides cannot be traced")
        raise AttributeError(f"{kind.__name__!r} object has no attribute {name!r}", name=name, obj=self)

    @property
    def ndim(self) -> int:
        held = self._held
        if (held.weak or held.others) and is_asked_by_traced_code():
            self._refuse_attribute_of_python_number("ndim")
        return len(held.type.shape)

    @property
    def size(self) -> int:
        held = self._held
        if (held.weak or held.others) and is_asked_by_traced_code():
            self._refuse_attribute_of_python_number("size")
        return held.type.size

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self._held.type.nbytes

    @property
    def device(self) -> str:
        """What NumPy's arrays say, wherever this one is computed."""
        return "cpu"

    @property
    def T(self) -> Any:
        if (self._held.weak or self._held.others) and is_asked_by_traced_code():
            self._refuse_attribute_of_python_number("T")
        return METHODS["transpose"](self)

    @property
    def mT(self) -> Any:
        return METHODS["swapaxes"](self, -1, -2)

    @property
    def real(self) -> Any:
        if self._held.others and is_asked_by_traced_code():
            self._refuse_attribute_of_python_number("real")
        return self._itself_as_number() if self._held.weak else np.real(self)

    @real.setter
    def real(self, value: Any) -> None:
        ATTRIBUTES["part"](np.real(self), value)

    @property
    def imag(self) -> Any:
        if self._held.others and is_asked_by_traced_code():
            self._refuse_attribute_of_python_number("imag")
        return np.imag(self) if self._held.weak in (None, complex) else self._held.weak(0) + 0

    @imag.setter
    def imag(self, value: Any) -> None:
        ATTRIBUTES["part"](np.imag(self), value)

    @property
    def flat(self) -> Any:
        return ATTRIBUTES["flat"](self)

    @flat.setter
    def flat(self, value: Any) -> None:
        self.flat[...] = value if np.ndim(value) == 0 else np.resize(value, self.size)

    def __len__(self) -> int:
        if not self.shape:
            raise DTypeError("a 0-d array has no length")
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        if not self.shape:
            raise DTypeError("a 0-d array cannot be iterated over; use it as it is")
        return (self[i] for i in range(self.shape[0]))

    def __getitem__(self, key: Any) -> Any:
        if (self._held.weak or self._held.others) and is_asked_by_traced_code():
            raise TypeError(f"{self.class_for_traced_code().__name__!r} object is not subscriptable")
        if self._trace.turn is not None and (part := self._trace.turn.part_at_turn(self, key)) is not None:
            return part
        found = METHODS["__getitem__"](self, key)
        return METHODS["copy"](found) if getattr(self._step, "flat", False) and found.shape else found

    def __setitem__(self, key: Any, value: Any) -> None:
        if self._trace.turn is not None and self._trace.turn.store_at_body_turn(self, key, value):
            return
        METHODS["__setitem__"](self, key, value)

    def __delitem__(self, key: Any) -> None:
        raise ShapeError("cannot delete array elements; write np.delete(x, i)")

    def __getattr__(self, name: str) -> Any:
        if (self._held.weak or self._held.others) and is_asked_by_traced_code():
            if name == "conjugate" and self._held.weak in (bool, int, float):
                return lambda: self._itself_as_number()
            self._refuse_attribute_of_python_number(name)
        implementation = METHODS.get(name)
        if implementation is not None and self._trace.recorder is not None:
            return self._trace.recorder.method(self._trace.recorder.lift(self), name)
        if implementation is not None:
            return _BoundNumpyMethod(implementation, self, name)
        if name.startswith("__"):
            raise AttributeError(f"'numpy.ndarray' object has no attribute {name!r}")
        if self._owner == SCALAR:
            self._refuse_attribute_of_python_number(name)
        if not hasattr(np.ndarray, name):
            instead = instead_of(name, FOREIGN_ATTRIBUTES, dir(np.ndarray))
            instead = instead or "; arguments of other libraries are NumPy arrays here"
            raise MissingAttributeError(f"'numpy.ndarray' object has no attribute {name!r}{instead}")
        text = f"the array attribute .{name} cannot be traced{nearest_name_hint(name, METHODS)}"
        raise UnsupportedError(text)

    # what has an answer while tracing only where no array of the call decides it

    def _known_scalar(self, what: str, instead: str, numpys: bool = False) -> Host:
        check_trace_alive(self)
        found = concrete_value(self._trace, self._value)
        if found is None:
            raise TraceError(
                f"a traced {self._value.type} has no value yet, so it {what}; {instead}",
                numpys=numpys,
                needs_values=True,
            )
        return found

    def __bool__(self) -> bool:
        instead = "write np.where(condition, a, b), or &, |, ~"
        return bool(self._decided_scalar("cannot decide an if, while, and, or, not", instead))

    def _decided_scalar(self, what: str, instead: str, numpys: bool = False) -> Host:
        """Its value, which control flow that is compiled would not need."""
        for name, reason in self._trace_for_decision().unwritten.items():
            instead += f"; the control flow of {name} is not compiled, since {reason}"
        return self._known_scalar(what, instead, numpys)

    def _trace_for_decision(self) -> Trace:
        """Its trace. That begins again where a function whose control flow is rewritten may do without the value."""
        trace = check_trace_alive(self)
        if trace.may_rewrite and concrete_value(trace, self._value) is None:
            raise UndecidedValue
        return trace

    def __int__(self) -> int:
        return int(
            self._decided_scalar(
                "is no Python int",
                "write x.astype(np.int64), or return it and call int() on the result",
                self.size != 1,
            )
        )

    def __index__(self) -> int:
        found = self._known_scalar(
            "cannot be an index, a length or a loop count",
            "pass that number as a Python int argument of the function",
            self.shape != () or (self.dtype.kind not in "iu" and not (self._held.weak is bool or self._held.others)),
        )
        return found.__index__()

    def __round__(self, decimals: Any = None) -> Any:
        if self._held.weak in (bool, int) and (decimals is None or (type(decimals) is int and decimals >= 0)):
            return self._itself_as_number()
        if self._held.weak or self._held.others:  # NumPy rounds to decimals by way of a product
            known = self._known_scalar("is no number of known decimals", "write np.round(x, decimals)")
            return round(known.item(), decimals)
        if self._owner != SCALAR or self.dtype.kind in "cb":
            what = "an array" if self._owner != SCALAR else f"a NumPy scalar of {self.dtype}"
            raise TraceError(f"{what} has no round(); write np.round(x, decimals)", numpys=True)
        return self.__int__() if decimals is None else np.round(self, decimals)

    def _itself_as_number(self) -> Any:
        """What Python's `+` gives: of a bool an int."""
        number: Any = self
        return +number

    def _whole_number(self, function: Callable[[Any], Any]) -> Any:
        """What a function of `math` that rounds gives."""
        if self._held.weak in (bool, int):
            return self._itself_as_number()
        self._trace_for_decision()
        return function(self._known_scalar("is no Python int", "write np.trunc(x), np.floor(x) or np.ceil(x)")[()])

    def __trunc__(self) -> Any:
        return self._whole_number(math.trunc)

    def __floor__(self) -> Any:
        return self._whole_number(math.floor)

    def __ceil__(self) -> Any:
        return self._whole_number(math.ceil)

    def __float__(self) -> float:
        return float(
            self._decided_scalar(
                "is no Python float",
                "write x.astype(np.float64), or return it and call float() on the result",
                self.size != 1,
            )
        )

    def __complex__(self) -> complex:
        return complex(self._decided_scalar("is no Python complex", "write x.astype(np.complex128)", self.size != 1))

    @property
    def item(self) -> Any:
        if (self._held.weak or self._held.others) and is_asked_by_traced_code():
            self._refuse_attribute_of_python_number("item")
        instead = "use it as it is, or return it and call .item() on the result"
        return lambda *args: self._known_scalar("has no .item()", instead).item(*args)

    @property
    def tolist(self) -> Any:
        if (self._held.weak or self._held.others) and is_asked_by_traced_code():
            self._refuse_attribute_of_python_number("tolist")
        return lambda: self._known_scalar("has no .tolist()", "return it and call .tolist() on the result").tolist()

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        self._trace_for_decision()  # it may be meant for an array that is traced then
        found = self._known_scalar(
            "cannot become a NumPy array",
            "use it as it is; np.stack joins traced values, np.astype converts them, and a function of another library "
            "takes their values in kg.host(function, reads, writes)",
        )
        return found if dtype is None else found.astype(dtype)

    def __contains__(self, value: Any) -> bool:
        if self._owner == SCALAR:
            raise TypeError(f"argument of type 'numpy.{self.dtype}' is not iterable")
        if not self.shape:  # an argument that may be a scalar of NumPy's outside
            raise TraceError("an array of no axes has no items for `in`; write x == value")
        return value in self._known_scalar("cannot decide `in`", "write (x == value).any() and np.where")

    def __hash__(self) -> int:
        text = "a traced value cannot be a dict key or a member of a set; use a list"
        number = self._owner == SCALAR
        raise TraceError(text, numpys=not number, needs_values=number)

    def __str__(self) -> str:
        if is_text_asked_by_traced_code():
            return str(numpy_text_array_of_tracer(self))
        found = constant_value_of_traced_node(check_trace_alive(self), self._value, numbers=not self.shape)
        return self._text_of_shape() if found is None else str(found[()])

    def __format__(self, spec: str) -> str:
        return format(numpy_text_array_of_tracer(self), spec) if spec or is_text_asked_by_traced_code() else str(self)

    def __repr__(self) -> str:
        if is_text_asked_by_traced_code():
            self._trace.require_native_byte_order()
            return repr(numpy_text_array_of_tracer(self))
        return self._text_of_shape()

    def _text_of_shape(self) -> str:
        return f"<traced {self._value.type}>"

    def __reduce__(self) -> NoReturn:
        raise TraceError("a traced value cannot be pickled; return it from the traced function")

    def __copy__(self) -> Any:
        return METHODS["copy"](self, "K")

    def __deepcopy__(self, memo: Any) -> Any:
        return METHODS["copy"](self, "K")

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        return sys.modules[__name__.partition(".")[0]]


class _BoundNumpyMethod:
    """`x.sum`, ready to be called."""

    __slots__ = ("_implementation", "_name", "_self")

    def __init__(self, implementation: Implementation, self_: Tracer, name: str) -> None:
        self._implementation, self._self, self._name = implementation, self_, name

    def __call__(self, *args: Any, **options: Any) -> Any:
        check_options_of_numpy_call(self._implementation, f".{self._name}()", options)
        result = self._implementation(self._self, *args, **options)
        return apply_view_rule_of_numpy(self._name, result, (self._self, *args), options)


class TracedNumber(NumpyProtocols):
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

    def _need_number_value(self) -> BaseException:
        check_trace_alive(self)
        return self._trace.need_values(self._sources)

    def __getattr__(self, name: str) -> Any:
        if hasattr(type(self._number), name):
            raise self._need_number_value()
        raise AttributeError(f"{type(self._number).__name__!r} object has no attribute {name!r}")

    @property
    def real(self) -> Any:
        if self._held.others and is_asked_by_traced_code():
            self._refuse_attribute_of_python_number("real")
        return self._number_attribute("real")

    @property
    def imag(self) -> Any:
        if self._held.others and is_asked_by_traced_code():
            self._refuse_attribute_of_python_number("imag")
        return self._number_attribute("imag")

    def conjugate(self) -> Any:
        return self._number_attribute("conjugate()")

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: Any) -> Any:
        return self

    def _number_attribute(self, name: str) -> Any:
        value = getattr(self._number, name.removesuffix("()"))
        return self._derived_number(f"{self._name}.{name}", value() if callable(value) else value, self._sources)

    def _derived_number(self, expression: str, number: Any, sources: frozenset[int]) -> Any:
        check_trace_alive(self)
        return TracedNumber(self._trace, self._trace.host_code.statement(expression), number, sources)

    def __bool__(self) -> bool:
        raise self._need_number_value()

    def __int__(self) -> int:
        raise self._need_number_value()

    def __float__(self) -> float:
        raise self._need_number_value()

    def __complex__(self) -> complex:
        raise self._need_number_value()

    def __index__(self) -> int:
        if not isinstance(self._number, int):
            raise TypeError(f"{type(self._number).__name__!r} object cannot be interpreted as an integer")
        raise self._need_number_value()

    def __round__(self, digits: Any = None) -> Any:
        raise self._need_number_value()

    def __trunc__(self) -> Any:
        raise self._need_number_value()

    def __floor__(self) -> Any:
        raise self._need_number_value()

    def __ceil__(self) -> Any:
        raise self._need_number_value()

    def __hash__(self) -> int:
        raise self._need_number_value()

    def __str__(self) -> str:
        raise self._need_number_value()

    def __format__(self, spec: str) -> str:
        raise self._need_number_value()

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise self._need_number_value()

    def __reduce__(self) -> Any:
        raise self._need_number_value()

    def __repr__(self) -> str:
        if is_text_asked_by_traced_code():
            raise self._need_number_value()
        return f"<traced {type(self._number).__name__}>"


def numpy_text_array_of_tracer(x: Tracer) -> Any:
    """The array or scalar that NumPy makes a text of."""
    found = x._known_scalar("has no text", "write kg.debug.print(x), or return it and format the result")
    return found if x.__class__ is np.ndarray else found[()]


def is_asked_by_traced_code() -> bool:
    """Whether the traced function itself has called the caller of this. No other Python function is between.

    Its globals are no exact dict (`environment.Scope`); whoever else looks, such as a debugger, may see a stand-in."""
    frame: Any = sys._getframe(2)
    if frame.f_code.co_name == "ask_in_traced_code":  # `isinstance` and `hasattr` of the traced function
        frame = frame.f_back
    return type(frame.f_globals) is not dict


_PASSING = ("proxies.py", "frozen_containers.py", "decisions.py", "loops.py", "comprehensions.py")  # what they call


def is_text_asked_by_traced_code() -> bool:
    """The same of a text, which code of a library may make for the function: `pprint`, `json`, a dataclass.

    Errors of this package show a stand-in, and so does a debugger."""
    frame = sys._getframe(2)
    while type(frame.f_globals) is dict:
        file = frame.f_code.co_filename
        if frame.f_back is None or sys.gettrace() is not None or (is_own_file(file) and not file.endswith(_PASSING)):
            return False
        frame = frame.f_back
    return True


def check_trace_alive(x: Tracer | TracedNumber) -> Trace:
    """The trace in progress, which `x` belongs to. Raises EscapedValueError."""
    trace: Trace = x._trace
    if trace is not context.trace:  # `current()`, without a call: this runs several times for each node
        what = repr(x)
        if not trace.alive:
            raise EscapedValueError(
                f"{what} escaped the trace that made it; return it from the traced function instead of "
                "keeping it in a global, a closure or an attribute"
            )
        raise EscapedValueError(f"{what} belongs to another trace in progress; pass it as an argument")
    return trace  # type: ignore[no-any-return]
