"""Python's operators on the stand-ins, made from the rows of the op table that name one."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np

from ...compiler.graph.builder import WEAK_DTYPES
from ...compiler.graph.graph import Value
from ...compiler.ops.table import OPS, UFUNC_PARTS
from ..core.errors import ShapeError, UnsupportedError
from ..trace.aliasing import assign_to_tracer
from ..trace.dispatch import LoopOperand, call_function
from ..trace.failures import can_failure_be_noted, check_failure_is_possible, fail_where, may_run_rows_in_numpy
from ..trace.number_kinds import (
    Kind,
    note_operator_result,
    number_kinds_of_operand,
    number_kinds_of_result,
    numpy_result_dtype_of_kinds,
    with_other_number_kinds,
)
from ..trace.operands import held_number, leaves_operator_to, to_graph_operand, trace_of_operands
from ..trace.python_operators import INT64_MAX, magnitude_of_node, magnitude_of_row, python_result_type
from ..trace.trace import Trace, TracedLoopSymbolBase, loop_recorder_of_trace
from ..trace.tracer import SCALAR, TracedNumber, Tracer, check_trace_alive
from .elementwise import apply_op_of_operator, check_output
from .masked_values import MaskedSelection


def _array_operator(name: str, rows: tuple[str, ...], arity: int, reflected: bool = False) -> Callable[..., Any]:
    def apply_unary_operator(self: Tracer) -> Any:
        return _apply_operator_row(rows[0], self)

    def apply_binary_operator(self: Tracer, other: Any, modulus: Any = None) -> Any:
        if modulus is not None or _is_left_to_other_operand(self, rows, other):
            return NotImplemented
        if rows == ("multiply",) and isinstance(other, _SEQUENCES) and _is_whole_scalar(self):
            return other * operator.index(self)
        if rows in _COMPARED and type(self) is Tracer and isinstance(other, _NO_NUMBERS):
            return np.full(self.shape, rows == ("not_equal",))[()]
        args = (other, self) if reflected else (self, other)
        if isinstance(other, TracedLoopSymbolBase) and loop_recorder_of_trace() is None:
            return NotImplemented
        results = tuple(_apply_operator_row(row, *args) for row in rows)
        return results if len(results) > 1 else results[0]

    function = apply_unary_operator if arity == 1 else apply_binary_operator
    function.__name__ = name
    return function


def _is_left_to_other_operand(x: Tracer, rows: tuple[str, ...], other: Any) -> bool:
    """Whether the other one's operator gives the result: a list repeats itself, or raises."""
    if other is NotImplemented or leaves_operator_to(other):
        return True
    if not isinstance(other, _SEQUENCES) or rows in _COMPARED:
        return False
    if isinstance(x, LoopOperand) and not isinstance(x, np.ndarray):
        return rows == ("multiply",) or isinstance(x.promotes_as, type)
    return _repeats_sequences(x)


def _apply_operator_row(row: str, *args: Any) -> Any:
    """What the operator of a row gives."""
    if (recorder := loop_recorder_of_trace()) is not None:
        found = recorder.operate(row, args)
        return apply_op_of_operator(row, *args) if found is NotImplemented else found
    if all(_may_be_python_number(x) for x in args):
        result = _apply_python_operator(row, args)
        if OPS[row].errors and (can_failure_be_noted(trace := result._trace) or may_run_rows_in_numpy(trace)):
            _note_errors_of_python_numbers(row, args, result)
        return result
    if not any(type(x) is Tracer and x._held.others for x in args):
        return apply_op_of_operator(row, *args)
    found = apply_op_of_operator(row, *map(_operand_of_one_dtype, args))
    value = with_other_number_kinds(found._value, number_kinds_of_result(row, [*map(to_graph_operand, args)], None))
    return Tracer(found._trace, value, found._owner)


def _may_be_python_number(x: Any) -> bool:
    """Whether an operand is a number of Python's, always or as values decide."""
    if type(x) is not Tracer:
        return type(x) in _NUMBERS
    return x._held.weak is not None or any(weak is not None for _, weak in x._held.others)


def _note_errors_of_python_numbers(row: str, args: Sequence[Any], result: Tracer) -> None:
    """Notes where Python's operator raises what NumPy's does not, or gives an int of more bits."""
    trace, sure = result._trace, all(_is_python_number(x) for x in args)
    if not (trace.reruns or sure):
        return
    for error in OPS[row].errors:
        if error.wraps and not (can_failure_be_noted(trace) and _may_int_be_beyond_int64(row, args, result)):
            continue  # rows and bodies count on as int64 does: they would all run in NumPy for their counters
        flag = error.where(*args, result)
        if type(flag) is Tracer:
            check_failure_is_possible(trace, error.kind(error.text))
            fail_where(trace, flag._value, error.kind(error.text))
        elif type(flag) is not TracedNumber:
            if flag and sure:
                raise error.kind(error.text)
            if flag:
                raise UnsupportedError(
                    f"whether {error.kind.__name__} is raised depends on whose number a traced value decides on"
                )
        elif flag._number:
            raise flag._need_number_value()
        else:
            trace.checks.append(f"not {flag._name}")


def _may_int_be_beyond_int64(row: str, args: Sequence[Any], result: Tracer) -> bool:
    """Whether the result is an int that may have more than 64 bits. A small number of the call's has to stay small."""
    if result._held.dtype.kind != "i":
        return False
    trace, small = result._trace, []
    magnitudes = []
    for x in map(held_number, args):
        magnitudes.append(magnitude_of_node(trace, x.number) if isinstance(x, Value) else abs(x))
    for place, x in enumerate(args):
        if type(x) is TracedNumber and magnitudes[place] <= SMALL:
            magnitudes[place] = SMALL
            small.append(f"-{SMALL} <= {x._name} <= {SMALL}")
        elif type(x) is TracedNumber:
            magnitudes[place] = INT64_MAX + 1
    if magnitude_of_row(row, magnitudes, result._held.dtype) > INT64_MAX:
        return True
    trace.checks += small
    return False


SMALL = 1 << 31  # a number of the call up to this is guarded to stay so small, and its results are not checked


def _is_python_number(x: Any) -> bool:
    """Whether an operand that may be a number of Python's is one whatever values decide."""
    return type(x) is not Tracer or all(weak is not None for _, weak in number_kinds_of_operand(x._value))


def _apply_python_operator(row: str, args: Sequence[Any]) -> Any:
    """What Python's operator gives of its numbers, which values decide; NumPy's where they may be NumPy's too."""
    given = [number_kinds_of_operand(held_number(x)) for x in args]
    results = []
    for kinds in product(*given):
        try:
            results.append(_operator_result_kind(row, args, kinds))
        except (TypeError, ArithmeticError, ValueError):
            if all(len(kinds) == 1 for kinds in given):
                raise
            results.append(None)
    known = [kind for kind in results if kind is not None]
    truths = any(dtype.kind == "b" for kinds in given for dtype, _ in kinds)
    if len(known) < len(results) or (truths and len({dtype for dtype, _ in known}) > 1):
        for x in args:
            if type(x) is TracedNumber:
                raise x._need_number_value()
        raise UnsupportedError(
            f"what {OPS[row].operator} gives of these numbers of Python's is of one type or another one, or an error, "
            "as a traced value decides; convert them with np.float64(...) or np.int64(...)"
        )
    weak = known[0][1]
    operands = [_operand_of_one_dtype(x) if weak in (None, bool, complex) else _as_python_type(x, weak) for x in args]
    value = apply_op_of_operator(row, *operands)._value
    value = with_other_number_kinds(Value(value.number, value.type, weak), [*dict.fromkeys(known)])
    note_operator_result(trace := trace_of_operands(*args), row, [*map(held_number, args)], value)
    return Tracer(trace, value, SCALAR)


def _operator_result_kind(row: str, args: Sequence[Any], kinds: Sequence[Kind]) -> Kind | None:
    """What the operator gives of numbers of one kind each; None where it depends on their values. Raises TypeError."""
    if any(weak is None for _, weak in kinds):
        return numpy_result_dtype_of_kinds(row, kinds), None
    known = [x if type(x) in WEAK_DTYPES else weak for x, (_, weak) in zip(args, kinds, strict=True)]
    found = python_result_type(str(OPS[row].operator), *known)
    return None if found is None else (WEAK_DTYPES[found], found)


def _as_python_type(x: Any, kind: Any) -> Any:
    """A number of Python's as int or float."""
    if type(x) is not Tracer:
        if kind is int and type(x) is int and not -INT64_MAX - 1 <= x <= INT64_MAX:
            raise UnsupportedError(f"{x} has more than 64 bits, as an int beside it need not have; write it as a float")
        return x if type(x) is TracedNumber else kind(x)
    value = x._trace.builder.cast(x._value, WEAK_DTYPES[kind])
    return Tracer(x._trace, Value(value.number, value.type, kind), SCALAR)


def _operand_of_one_dtype(x: Any) -> Any:
    """A number as what it is held as alone."""
    if type(x) is not Tracer or not x._held.others:
        return x
    value = x._value
    return Tracer(x._trace, Value(value.number, value.type, value.weak), x._owner)


def _inplace_operator(name: str, row: str) -> Callable[..., Any]:
    def apply_inplace_operator(self: Any, other: Any) -> Any:
        if (recorder := loop_recorder_of_trace()) is not None:
            return recorder.update_in_place(self, _apply_operator_row(row, self, other))
        if isinstance(other, TracedLoopSymbolBase):
            other = other.traced(self)
        if type(self) is Tracer and self._owner != SCALAR:
            check_output(row, (self, other), self)
        if type(self) is Tracer and self._owner == SCALAR:  # its name is bound anew
            return _apply_operator_row(row, self, other)
        result = apply_op_of_operator(row, self, other)
        if type(self) is MaskedSelection:
            return self.assign(result)
        return assign_to_tracer(self, result)

    apply_inplace_operator.__name__ = name
    return apply_inplace_operator


def _number_operator(
    name: str, python: str, rows: tuple[str, ...], arity: int, reflected: bool = False
) -> Callable[..., Any]:
    """Among numbers Python's own operator, on the host; with anything else the array's."""
    on_arrays = _array_operator(name, rows, arity, reflected)
    function = divmod if python == "__divmod__" else getattr(operator, python)

    def apply_host_operator(self: TracedNumber, *others: Any) -> Any:
        other = others[0] if others else self
        if isinstance(other, _SEQUENCES):  # which `*` repeats, as often as it asks for
            return NotImplemented
        if other is None and rows in _COMPARED:
            return NotImplemented
        if any(type(other) not in _NUMBERS and not _is_operand_of_number_subclass(other) for other in others):
            return on_arrays(self, *others)
        operands = (*others, self) if reflected else (self, *others)
        for o in operands:
            if type(o) is TracedNumber:
                check_trace_alive(o)
        sources = frozenset().union(*(o._sources for o in operands if type(o) is TracedNumber))
        try:
            number = function(*(o._number if type(o) is TracedNumber else o for o in operands))
        except (ArithmeticError, TypeError, ValueError):
            raise self._trace.need_values(sources) from None  # with known numbers Python raises it at the user's line
        code = self._trace.host_code
        names = [o._name if type(o) is TracedNumber else code.constant(o) for o in operands]
        result = code.operation(python, function, names)
        if _may_raise_on_numbers(rows):
            self._trace.checks.append(f"{result} is not None")  # so that it is computed, whoever needs it
        return _traced_numbers(self._trace, result, number, sources)

    apply_host_operator.__name__ = name
    return apply_host_operator


def _may_raise_on_numbers(rows: tuple[str, ...]) -> bool:
    """Whether Python's own operator on numbers may raise an error."""
    return any(not error.wraps for row in rows for error in OPS[row].errors)


def _traced_numbers(trace: Trace, name: str, number: Any, sources: frozenset[int]) -> Any:
    """The number of this name in the host's code; of a tuple each."""
    if not isinstance(number, tuple):
        return TracedNumber(trace, name, number, sources)
    names = (trace.host_code.statement(f"{name}[{i}]") for i in range(len(number)))
    return tuple(TracedNumber(trace, part, n, sources) for part, n in zip(names, number, strict=True))


def _repeats_sequences(x: Any) -> bool:
    """Whether Python takes it for a number beside a list or a text."""
    return type(x) is Tracer and bool(x._held.weak or x._held.others or (x._owner == SCALAR and x.dtype.kind in "fcb"))


def _is_whole_scalar(x: Any) -> bool:
    return type(x) is Tracer and x._owner == SCALAR and x.dtype.kind in "iu"


def _is_operand_of_number_subclass(x: Any) -> bool:
    """Whether it is a number of a subclass of Python's, such as an IntEnum."""
    return isinstance(x, (int, float, complex)) and not isinstance(x, (np.generic, Tracer, TracedLoopSymbolBase))


_STAND_INS: tuple[type, ...] = (Tracer, MaskedSelection, LoopOperand)
_NUMBERS = {bool, int, float, complex, TracedNumber}
_SEQUENCES = (list, tuple, str, bytes, bytearray)
_COMPARED = (("equal",), ("not_equal",))
_NO_NUMBERS = (str, bytes, type(None))  # which no number is equal to


def _install_tracer_operators() -> None:
    """Gives both stand-ins the Python methods that the rows of the table answer."""
    rows: dict[str, tuple[str, ...]] = {
        row.operator: (row.name,) for row in OPS.values() if row.operator and row.kind == "map"
    }
    rows["__divmod__"] = UFUNC_PARTS[np.divmod]
    for python, parts in rows.items():
        arity = OPS[parts[0]].arity
        for stand_in in _STAND_INS:
            setattr(stand_in, python, _array_operator(python, parts, arity))
        setattr(TracedNumber, python, _number_operator(python, python, parts, arity))
        stem = python.strip("_")
        if arity == 2 and hasattr(int, f"__r{stem}__"):
            for stand_in in _STAND_INS:
                setattr(stand_in, f"__r{stem}__", _array_operator(f"__r{stem}__", parts, arity, True))
            setattr(TracedNumber, f"__r{stem}__", _number_operator(f"__r{stem}__", python, parts, arity, True))
            if hasattr(operator, f"__i{stem}__"):
                for stand_in in _STAND_INS:
                    setattr(stand_in, f"__i{stem}__", _inplace_operator(f"__i{stem}__", parts[0]))
    for stand_in in _STAND_INS:
        setattr(stand_in, "__imatmul__", _inplace_matmul_operator)  # noqa: B010
    for kind in (TracedNumber, *_STAND_INS):
        setattr(kind, "__matmul__", lambda self, other: _matmul_operator(self, other, self, other))  # noqa: B010
        setattr(kind, "__rmatmul__", lambda self, other: _matmul_operator(self, other, other, self))  # noqa: B010


def _matmul_operator(self: Any, other: Any, left: Any, right: Any) -> Any:
    if _is_python_number_in_operator(self) and _is_python_number_in_operator(other):
        return NotImplemented
    return call_function(np.matmul, (left, right), {})


def _inplace_matmul_operator(self: Any, other: Any) -> Any:
    """`self @= other`, which makes no axis and loses none. Raises ShapeError."""
    axes = other.ndim if hasattr(other, "ndim") else np.ndim(other)  # np.ndim alone would ask for a mask's value
    if not self.ndim or axes < 2:
        raise ShapeError(
            "inplace matrix multiplication requires the first operand to have at least one and the second at least two "
            "dimensions; write x = x @ y"
        )
    return assign_to_tracer(self, call_function(np.matmul, (self, other), {}))


def _is_python_number_in_operator(x: Any) -> bool:
    """Whether it is one to Python, which an array of no axes is not."""
    return type(x) in _NUMBERS or isinstance(x, (int, float, complex, np.generic))


_install_tracer_operators()
