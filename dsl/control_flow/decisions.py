"""What a rewritten function calls where it decides: plain values decide as in Python, traced ones become nodes.

The sides of a decision on a traced value are both traced. What they give and change is joined: by a select where both
are cheap to compute, else by a branch, of which one side runs.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import BuiltinFunctionType
from typing import Any

import numpy as np

from ...compiler.core.types import FLOAT64, INT64, WeakType
from ...compiler.graph.builder import WEAK_DTYPES
from ...compiler.graph.control_flow import Branch, add_control_flow_node, cut_body_graphs_from_builder
from ...compiler.graph.graph import GraphError, Value
from ...runtime.core.errors import KernelGraphError
from ..core.errors import (
    TraceError,
    UnsupportedError,
    UserError,
    is_numpy_error,
    locate_graph_error,
    numpy_error_as_ours,
    undecided_identity_error,
)
from ..core.object_model import UNSET
from ..core.pytree import flatten
from ..core.spec import SCALAR_TYPES
from ..functions.creation import empty_ndarray
from ..functions.elementwise import apply
from ..trace.aliasing import TracerChoice, select_value_by_flag, whole_array_of_rows
from ..trace.concrete_values import concrete_value
from ..trace.dispatch import METHODS
from ..trace.failures import (
    check_error_is_of_python,
    check_failure_is_possible,
    fail_here,
    fail_where,
    first_failure,
    put_first_failure,
)
from ..trace.operands import loop_operations
from ..trace.trace import Trace, TracedLoopSymbolBase, current_trace, loop_recorder_of_trace
from ..trace.tracer import SCALAR, TracedNumber, Tracer
from .effects import Journal, write_array_value_with_journal
from .math_functions import MATH_FUNCTIONS, MathFunction, apply_math_function
from .merge import BranchMerge, BranchSide
from .rewrite import PREFIX

CHEAP = 1 << 16  # elements that both sides may compute together before only one of them runs
DEEPEST = 40  # decisions, one in another
SHORT = 64  # an array whose elements max() and min() compare one by one
_CHEAP_KINDS = frozenset({"map", "view", "source", "assembly"})
_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "Lt": operator.lt,
    "LtE": operator.le,
    "Gt": operator.gt,
    "GtE": operator.ge,
    "Eq": operator.eq,
    "NotEq": operator.ne,
    "Is": lambda a, b: is_(a, b),
    "IsNot": lambda a, b: is_not(a, b),
    "In": lambda a, b: is_in(a, b),
    "NotIn": lambda a, b: not_(is_in(a, b)),
}
Part = Callable[[], Any]


def is_undecided_condition(test: Any) -> bool:
    """Whether arrays of the call decide it."""
    if isinstance(test, TracedLoopSymbolBase):
        return True
    return isinstance(test, Tracer) and test.size == 1 and concrete_value(test._trace, test._value) is None


def if_(test: Any, then: Part, otherwise: Part | None) -> None:
    """`if test: then()`, `else: otherwise()`."""
    if is_undecided_condition(test):
        _trace_and_join_branches(test, then, otherwise or _empty_python_branch)
    elif test:
        then()
    elif otherwise is not None:
        otherwise()


def choose(test: Any, then: Part, otherwise: Part) -> Any:
    """`then() if test else otherwise()`."""
    if is_undecided_condition(test):
        return _trace_and_join_branches(test, then, otherwise)
    return then() if test else otherwise()


def and_(first: Any, second: Part) -> Any:
    """`first and second()`."""
    return (
        _trace_and_join_branches(first, second, lambda: first) if is_undecided_condition(first) else first and second()
    )


def or_(first: Any, second: Part) -> Any:
    """`first or second()`."""
    return (
        _trace_and_join_branches(first, lambda: first, second) if is_undecided_condition(first) else first or second()
    )


def and_test(first: Any, second: Part) -> Any:
    """`first and second()`, of which only the truth counts."""
    return choose(first, lambda: _traced_truth_value_of_test(second()), _python_false)


def or_test(first: Any, second: Part) -> Any:
    """`first or second()`, of which only the truth counts."""
    return choose(first, _python_true, lambda: _traced_truth_value_of_test(second()))


def _traced_truth_value_of_test(value: Any) -> Any:
    return _bool_call_in_rewritten_code(_branch_flag_as_scalar(value)) if is_undecided_condition(value) else bool(value)


def _python_true() -> bool:
    return True


def _python_false() -> bool:
    return False


def not_(value: Any) -> Any:
    """`not value`."""
    if not is_undecided_condition(value):
        return not value
    return _as_python_number(apply("logical_not", _branch_flag_as_scalar(value)), bool)


def any_(*flags: Any) -> Any:
    """Whether one of the flags is set."""
    known = [f for f in flags if not is_undecided_condition(f)]
    if any(known) or len(known) == len(flags):
        return any(known)
    found, *others = [f for f in flags if is_undecided_condition(f)]
    for flag in others:
        found = apply("logical_or", found, flag)
    return found


def compare(left: Any, names: Sequence[str], *parts: Part) -> Any:
    """`left < parts[0]() < parts[1]()`, with the operators of these names."""
    right = parts[0]()
    found = _COMPARISONS[names[0]](left, right)
    return found if len(parts) == 1 else and_(found, lambda: compare(right, names[1:], *parts[1:]))


def is_(a: Any, b: Any) -> Any:
    """`a is b`. Raises TraceError for two arrays or containers of the caller's, which may be one in one call alone."""
    trace = current_trace()
    if trace is None:
        return a is b
    for number, other in ((a, b), (b, a)):
        if type(other) in (bool, np.bool_) and _is_always_truth(number, type(other)):
            return _as_python_number(number, bool) if other else not_(number)
    if a is not b:
        _check_number_is_no_other(a, b)
        _check_number_is_no_other(b, a)
        if trace.chosen.is_chosen(a) or trace.chosen.is_chosen(b):
            raise undecided_identity_error("objects")
    for x, other in ((a, b), (b, a)):
        if a is not b and type(x) is type(other) is Tracer and isinstance(x._step, TracerChoice):
            parts = zip(x._step.flags, x._step.arrays, strict=True)
            return any_(*(_flag_and_identity(trace, flag, array, other) for flag, array in parts))
    if not (type(a) is Tracer and type(b) is Tracer):
        if trace.world.may_be_one(a, b):
            raise undecided_identity_error("values")
        return trace.world.original_value(a) is trace.world.original_value(b)
    return _is_same_array(trace, a, b)


def is_in(item: Any, holder: Any) -> Any:
    """`item in holder`; of a number that values decide, whether it is equal to one of some numbers."""
    if type(holder) not in _SEQUENCES or len(holder) > SHORT or not {*map(type, holder)} <= {int, float, bool}:
        return item in holder
    is_number = _may_be_number(item) or (isinstance(item, TracedLoopSymbolBase) and not isinstance(item, np.ndarray))
    if not (is_number and is_undecided_condition(item)):
        return item in holder
    return call(bool, any_(*(item == x for x in holder)))


def is_not_in(item: Any, holder: Any) -> Any:
    """`item not in holder`."""
    return not_(is_in(item, holder))


def whether_none(x: Any) -> Any:
    """`x` itself, checked before it is compared with None. Raises LoopNotRecordable where values decide that."""
    if issubclass(type(x), TracedLoopSymbolBase):
        x.check_is_not(None)
    return x


def _is_always_truth(x: Any, kind: type) -> bool:
    """Whether it is one of the two truths of Python's or NumPy's, as values decide."""
    if type(x) is not Tracer or x._owner != SCALAR or x.dtype != np.bool_ or x._held.others:
        return False
    return x._held.weak is (bool if kind is bool else None)


def _is_same_array(trace: Trace, a: Tracer, b: Tracer) -> bool:
    if any(x is b for x in trace.possible_aliases(a)):
        raise undecided_identity_error("arrays")
    own = a._owner, b._owner
    if a is b or own[0] == own[1] or None in own or SCALAR in own or (a.shape, a.dtype) != (b.shape, b.dtype):
        return a is b
    raise undecided_identity_error("arrays")


def _check_number_is_no_other(number: Any, other: Any) -> None:
    """Raises where values decide a number, so that it may be another one in one call alone."""
    if isinstance(number, TracedLoopSymbolBase):
        number.check_is_not(other)
    if not _may_be_number(other):
        return
    if type(number) is TracedNumber:
        raise number._need_number_value()
    if type(number) is Tracer and number._owner == SCALAR:
        raise undecided_identity_error("numbers")


def _flag_and_identity(trace: Trace, flag: Value, a: Tracer, b: Tracer) -> Any:
    """Whether a flag is set, and `a is b`."""
    same, set_ = is_(a, b), Tracer(trace, Value(flag.number, flag.type, bool), SCALAR)
    if type(same) is bool:
        return same and set_
    return _as_python_number(apply("logical_and", set_, same), bool)


def _may_be_number(x: Any) -> bool:
    """Whether it may be the object that a number is which values decide."""
    if type(x) is Tracer:
        return x._owner == SCALAR
    return type(x) in (*WEAK_DTYPES, str, TracedNumber)


def is_not(a: Any, b: Any) -> Any:
    """`a is not b`. Raises TraceError as `is_` does."""
    return not_(is_(a, b))


def matched(subject: Any) -> Any:
    """What a `match` looks at that has a `case True`: no pattern may ask by identity for what values decide."""
    leaves: list[Any] = []
    flatten(subject, leaves)
    for leaf in leaves:
        if type(leaf) is TracedNumber and type(leaf._number) is bool:
            raise leaf._need_number_value()
        if is_undecided_condition(leaf) and not isinstance(leaf, np.ndarray):
            raise undecided_identity_error("numbers")
    return subject


def assert_(test: Any, fail: Part) -> None:
    """`assert test`, else fail()."""
    if_(test, _empty_python_branch, fail)


def call(function: Any, *args: Any, **options: Any) -> Any:
    """`function(*args, **options)`, for a builtin that asks arrays for their values, or for `np.ndarray`."""
    recorder = loop_recorder_of_trace()
    if recorder is not None:
        found = recorder.convert(function, args, options)
        if found is not NotImplemented:
            return found
    if function is np.ndarray:
        return empty_ndarray(*args, **options)
    found = NotImplemented
    if isinstance(function, type) and issubclass(function, np.generic):
        found = _scalar_type_call_in_rewritten_code(function, args)
    elif isinstance(function, (type, BuiltinFunctionType)) and not options:  # others may have no hash
        found = _builtin_of_undecided_values(function, args)
    return function(*args, **options) if found is NotImplemented else found


def _builtin_of_undecided_values(function: Any, args: Sequence[Any]) -> Any:
    """What one of Python's builtins gives of arguments that values decide; NotImplemented where Python itself knows."""
    if any(map(is_undecided_condition, args)):
        if function in _CONVERSIONS and len(args) == 1:
            return _CONVERSIONS[function](_operand_as_python_number(function, args[0]))
        if function in _WHOLE and len(args) == 1 and is_number_of_values(x := args[0]) and x.dtype in (FLOAT64, INT64):
            x = _operand_as_python_number(function, x)
            return _int_call_in_rewritten_code(apply(_WHOLE[function], x) if x.dtype == FLOAT64 else x)
        if function is complex:
            return _complex_of_two_in_rewritten_code(*args)
        if len(args) == _EXACT.get(function):
            raise UnsupportedError(f"{function.__name__} asks Python for the values of its arguments")
    return _fold_of_undecided_values(function, args) if args and function in _FOLDS else NotImplemented


def _fold_of_undecided_values(function: Any, args: Sequence[Any]) -> Any:
    """`max`, `min` or `sum` of values that values decide; else NotImplemented."""
    recorder = loop_recorder_of_trace()
    rows = whole_array_of_rows(args[0]) if len(args) == 1 and recorder is None else None
    if rows is not None and rows.dtype != bool and (rows.ndim == 1 or function is sum) and not args[0][0]._held.others:
        return fold_list_of_rows(function, Tracer(rows._trace, rows._value), args[0][0]._held.weak)
    larger = _FOLDS[function]
    items = [*args] if len(args) > 1 else _items_of_sequence_or_array(args[0])
    if larger is None or not any(map(is_undecided_condition, items)):
        return NotImplemented
    found = items[0]
    for item in items[1:]:
        if recorder is not None:
            found = recorder.better(larger, found, item)
        else:
            found = choose(larger(item, found), lambda item=item: item, lambda best=found: best)  # type: ignore[misc]
    return found


def is_number_of_values(x: Any) -> bool:
    """Whether it is a number, not an array, which values decide."""
    return isinstance(x, (Tracer, TracedLoopSymbolBase)) and getattr(x, "_owner", None) == SCALAR


def _operand_as_python_number(function: Any, x: Tracer) -> Any:
    """An array of one element, as one number, where Python takes it for one; the real part of a complex number of
    NumPy's, unless `function` takes complex numbers. Raises DTypeError."""
    is_array, cuts = x.__class__ is np.ndarray, x.dtype.kind == "c" and function not in (bool, complex)
    if cuts or function is math.trunc or (is_array and x.ndim and function is not bool):
        try:
            function(np.ones(x.shape, x.dtype) if is_array else x.__class__(1))
        except TypeError as error:
            raise numpy_error_as_ours(error) from None
    return _branch_flag_as_scalar(x.real if cuts else x)


_EXACT: dict[Any, int] = {pow: 3, math.ldexp: 2}  # what takes nothing that stands for an int, of so many arguments
_SEQUENCES = (list, tuple, set, frozenset)


def fold_list_of_rows(function: Any, rows: Any, weak: WeakType | None) -> Any:
    """What Python's max, min or sum give of a list whose elements are these rows. weak: what they are of Python's."""
    if function is sum:
        found = np.sum(rows, axis=0, dtype=rows.dtype) + 0  # so that the sum of -0.0 is 0.0
    else:
        fold, least = (np.max, -np.inf) if function is max else (np.min, np.inf)
        if rows.dtype.kind != "f":
            found = fold(rows)
        else:  # of NaN only the first one counts
            found = np.where(np.isnan(rows[0]), rows[0], fold(np.where(np.isnan(rows), rows.dtype.type(least), rows)))
    if weak is None or not isinstance(found, Tracer):
        return found[()] if isinstance(found, Tracer) and not found.shape else found
    return _as_python_number(found, weak)


def _items_of_sequence_or_array(value: Any) -> list[Any]:
    """Those of a list or tuple, or of a short array."""
    if isinstance(value, Tracer):
        return [*value] if value.ndim == 1 and len(value) <= SHORT else []
    return [*value] if isinstance(value, (list, tuple)) else []


def _float_call_in_rewritten_code(x: Any) -> Any:
    cast = x.dtype == bool
    return _as_python_number(
        METHODS["astype"](x, np.float64) if cast else apply("positive", x, dtype=np.float64), float
    )


def _scalar_type_call_in_rewritten_code(kind: type[np.generic], args: Sequence[Any]) -> Any:
    """`np.float32(x)`: NumPy casts, and makes a scalar of an array without axes. NotImplemented where Python must know
    more."""
    x: Any = args[0] if len(args) == 1 else None
    numbers = kind in SCALAR_TYPES and type(x) is Tracer and not (x._held.weak or x._held.others)
    if not numbers or concrete_value(x._trace, x._value) is not None:
        return NotImplemented
    found = METHODS["astype"](x, np.dtype(kind))
    return found[()] if not found.ndim else found


def _as_python_number(x: Any, kind: Any) -> Any:
    """What NumPy has computed, as a number of Python's."""
    if (loop := loop_operations()) is not None:
        return loop.python_number(x, kind)
    value = x._value
    return Tracer(x._trace, Value(value.number, value.type, kind), SCALAR)


BEYOND_INT64 = 2.0**63  # the least float that is, but for its sign
NO_INT64 = "cannot convert float infinity to integer, nor one of more than 64 bits"


def _int_call_in_rewritten_code(x: Any) -> Any:
    if x.__class__ is int:
        return x
    if x.dtype.kind == "f":
        _raise_where(apply("isnan", x), ValueError, "cannot convert float NaN to integer")
        with np.errstate(over="ignore"):
            beyond = x.dtype.type(BEYOND_INT64)  # an infinity of float16
        _raise_where(apply("greater_equal", apply("absolute", x), beyond), OverflowError, NO_INT64)
    return _as_python_number(METHODS["astype"](x, np.int64), int)


def _bool_call_in_rewritten_code(x: Any) -> Any:
    return _as_python_number(apply("not_equal", x, 0) if x.dtype != bool else x, bool)


def _complex_call_in_rewritten_code(x: Any) -> Any:
    return _as_python_number(METHODS["astype"](x, np.complex128), complex)


def _complex_of_two_in_rewritten_code(*parts: Any) -> Any:
    re, im = (x if type(x) in WEAK_DTYPES else _operand_as_python_number(complex, x) for x in parts)
    if any(type(x) is complex or getattr(x, "dtype", None) == np.complex128 for x in (re, im)):
        raise UnsupportedError("complex() of two numbers takes real ones; write re + 1j * im")
    return _as_python_number(apply("complex", call(float, re), call(float, im)), complex)


def _math_call_in_rewritten_code(function: MathFunction, x: Any) -> Any:
    return _as_python_number(apply_math_function(function, _float_call_in_rewritten_code(x), _raise_where), float)


def _raise_where(condition: Any, kind: type[Exception], text: str) -> None:
    if (loop := loop_operations()) is not None:
        loop.raise_where(condition, kind, text)
        return
    check_failure_is_possible(condition._trace, kind(text))
    fail_where(condition._trace, condition._value, kind(text))


_CONVERSIONS: dict[Any, Callable[[Any], Any]] = {
    float: _float_call_in_rewritten_code,
    int: _int_call_in_rewritten_code,
    bool: _bool_call_in_rewritten_code,
    complex: _complex_call_in_rewritten_code,
    **{function: partial(_math_call_in_rewritten_code, row) for function, row in MATH_FUNCTIONS.items()},
}
_WHOLE = {round: "rint", math.floor: "floor", math.ceil: "ceil", math.trunc: "trunc"}  # an int of a number
_FOLDS: dict[Any, Callable[[Any, Any], Any] | None] = {max: operator.gt, min: operator.lt, sum: None}


@contextmanager
def handled(count: int = 1) -> Iterator[None]:
    """While an error would be caught; with 0, while it may be."""
    trace = current_trace()
    if trace is None:
        yield
        return
    trace.handlers += count
    try:
        yield
    except Exception as error:
        check_error_is_of_python(trace, error)
        raise
    finally:
        trace.handlers -= count


def caught(error: BaseException) -> None:
    """To be called of an error that a function catches and gives a name. Raises UnsupportedError where it is NumPy's,
    whose class and text are other ones."""
    trace = current_trace()
    if trace is not None and trace.reruns and isinstance(error, UserError):
        raise UnsupportedError(f"the function looks at an error of NumPy's that it catches: {error}") from error


def result(value: Any) -> Any:
    """What a function returns."""
    return None if value is UNSET else value


def _empty_python_branch() -> None: ...


def _branch_flag_as_scalar(flag: Tracer) -> Any:
    """A flag of shape ()."""
    return flag.reshape(()) if flag.__class__ is np.ndarray and flag.shape else flag


# decisions on traced values


def _trace_and_join_branches(test: Tracer, then: Part, otherwise: Part) -> Any:
    recorder = loop_recorder_of_trace()
    if recorder is not None:
        return recorder.join(test, then, otherwise)
    trace = test._trace
    if len(trace.path) >= DEEPEST:
        raise TraceError(
            f"{DEEPEST} decisions on traced values lie one in another; a recursion that a traced value ends cannot be "
            "compiled, write a loop"
        )
    nonzero = _bool_call_in_rewritten_code(_branch_flag_as_scalar(test))
    flag = Value(nonzero._value.number, nonzero._value.type)
    first = len(trace.builder.nodes)
    journal = Journal([then, otherwise])
    sides = [
        _trace_branch_side(trace, journal, flag, then),
        _trace_branch_side(trace, journal, trace.builder.map("logical_not", flag), otherwise),
    ]
    if sides[0].error and sides[1].error:
        raise UnsupportedError("both sides of a decision on a traced value raise; raise after it")
    if sides[0].error or sides[1].error:
        return _take_branch_that_goes_on(trace, flag, sides)
    return _merge_branch_effects(trace, flag, sides, first)


def _trace_branch_side(trace: Trace, journal: Journal, flag: Value, part: Part) -> BranchSide:
    trace.path.append(flag)
    given, error = None, None
    with journal.opened(trace):
        try:
            given = part()
        except Exception as raised:
            if isinstance(raised, KernelGraphError) and not is_numpy_error(raised):
                raise
            error = locate_graph_error(raised) if isinstance(raised, GraphError) else raised
            fail_here(trace, error)
        finally:
            trace.path.pop()
    if error:
        journal.check_others_unchanged()
    changed = {} if error else journal.changes()
    failed = first_failure(trace)
    known = {id(value) for _, value in journal.slots.values()} | journal.kept
    written = {key: (root, old, root._held) for key, (root, old) in journal.written.items()}
    journal.undo()
    return BranchSide(given, changed, written, journal.made, known, error, failed)


def _take_branch_that_goes_on(trace: Trace, flag: Value, sides: Sequence[BranchSide]) -> Any:
    """The effects of the side that raises no error: nobody looks at those of a call that takes the other one."""
    side = sides[sides[0].error is not None]
    for root, _, value in side.written.values():
        write_array_value_with_journal(trace, root, value)
    for slot, _, value in side.changed.values():
        slot.put(value)
    put_first_failure(trace, select_value_by_flag(trace.builder, flag, sides[0].failed, sides[1].failed))
    return side.given


def _merge_branch_effects(trace: Trace, flag: Value, sides: list[BranchSide], first: int) -> Any:
    """The effects of two sides as one."""
    merge = BranchMerge(trace, flag, sides, first)
    slots = {key: found for side in reversed(sides) for key, found in side.changed.items()}
    pairs = []
    for key, (slot, old, _) in slots.items():
        a, b = (side.changed[key][2] if key in side.changed else old for side in sides)
        pairs.append((slot, merge.pair(a, b, slot.name)))
    roots = {key: found for side in reversed(sides) for key, found in side.written.items()}
    helds = []
    for number, (root, old, _) in roots.items():
        a, b = (side.written[number][2] if number in side.written else old for side in sides)
        helds.append((root, merge.values(a, b)))
    given = merge.pair(sides[0].given, sides[1].given, "the value")
    merge.finish(_select_branch_values_by_flag(trace, flag, merge.both, first))
    for slot, pair in pairs:
        found = pair()
        if found is UNSET and not slot.name.startswith(PREFIX):
            trace.half_bound.add(slot.name)
        slot.put(found)
    for root, held in helds:
        write_array_value_with_journal(trace, root, held())
    found = given()
    merge.begin()
    return found


def _select_branch_values_by_flag(
    trace: Trace, flag: Value, both: Sequence[tuple[Value, Value]], first: int
) -> list[Value]:
    """Of each pair of values of one type the first where the flag is set. Else it is the second."""
    if not both:
        return []
    builder = trace.builder
    if _both_python_branches_are_cheap(trace, both, first):
        return [v if v.number == w.number else select_value_by_flag(builder, flag, v, w) for v, w in both]
    outputs = [list(values) for values in zip(*both, strict=True)]
    cuts = cut_body_graphs_from_builder(builder, [[], []], outputs, first, hoist=False, fixed=trace.may_raise)
    branch = Branch((cuts[0].body, cuts[1].body))
    args = [flag, *map(builder.at, cuts[0].inputs), *map(builder.at, cuts[0].numbers)]
    return add_control_flow_node(builder, branch, args)


def _both_python_branches_are_cheap(trace: Trace, both: Sequence[tuple[Value, Value]], first: int) -> bool:
    """Whether computing both sides costs less than deciding which one runs. Nothing in them may fail."""
    nodes, size = trace.builder.nodes, 0
    first = min(first, *trace.may_raise) if trace.may_raise else first
    todo, seen = [v.number for pair in both for v in pair], set[int]()
    while todo:
        number = todo.pop()
        if number < first or number in seen:
            continue
        seen.add(number)
        node = nodes[number]
        size += node.type.size
        if node.kind not in _CHEAP_KINDS or size > CHEAP:
            return False
        todo += node.args
    return size + sum(v.type.size for v, _ in both) <= CHEAP
