"""What a number is to NumPy's promotion: its dtype, and the Python type that it follows if it is weak; or one kind or
another, as values decide."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial, reduce
from itertools import product
from typing import Any, TypeAlias

import numpy as np

from ...compiler.core.types import DType, WeakType
from ...compiler.graph.builder import WEAK_DTYPES
from ...compiler.graph.graph import Value
from ...compiler.ops.table import OPS, resolve_op_row_dtypes
from ..core.errors import UnsupportedError
from .trace import Trace

Kind: TypeAlias = tuple[DType, WeakType | None]
FLOATS, WHOLE = "fc", "biu"


def number_kinds_of_operand(x: Any) -> tuple[Kind, ...]:
    """All that a node or a number that is known may be; the first is what it is held as."""
    if isinstance(x, Value):
        return ((x.dtype, x.weak), *x.others)
    if isinstance(x, np.generic):
        return ((x.dtype, None),)
    return ((WEAK_DTYPES[type(x)], type(x)),)


def dtypes_or_types_of_number_kinds(kinds: Iterable[Kind]) -> list[DType | WeakType]:
    """Kinds as promotion takes them: a dtype, or a Python type that has none of its own there."""
    return [dtype if weak is None or weak is bool else weak for dtype, weak in kinds]


def have_number_kinds_two_dtypes(kinds: Iterable[Kind]) -> bool:
    """Whether what is computed from a number of these kinds may have two dtypes, or be a bool or a number."""
    kinds = [*kinds]
    strong = {dtype for dtype, weak in kinds if weak is None}
    truths = {dtype.kind == "b" for dtype, _ in kinds}
    return len(truths) > 1 or any(len([d for d in strong if d.kind in same]) > 1 for same in (FLOATS, WHOLE))


def joined_number_kinds(operands: Sequence[Any], others: Iterable[Kind] = ()) -> tuple[Kind, ...] | None:
    """All that a number is which is one of these operands, or of these other kinds; the first is what it is held as.
    None where that would change one of them."""
    kinds = [*dict.fromkeys([*others, *(kind for x in operands for kind in number_kinds_of_operand(x))])]
    strong = {dtype for dtype, weak in kinds if weak is None}
    if len({dtype.kind == "b" for dtype, _ in kinds}) > 1 or len(strong) > 1:
        return None
    dtype = np.result_type(*(d if weak is None else weak(0) for d, weak in kinds))
    if strong - {dtype} or not all(does_number_fit(x, dtype) for x in operands):
        return None
    held = next((d, weak) for d, weak in kinds if d == dtype and (weak is None or not strong))
    return held, *(kind for kind in kinds if kind != held)


def does_number_fit(x: Any, dtype: DType) -> bool:
    """Whether a number of Python's keeps its digits in a dtype."""
    if isinstance(x, (Value, np.generic)):
        return np.can_cast(x.dtype, dtype)
    try:
        with np.errstate(all="ignore"):
            return bool(dtype.type(x).item() == x or x != x)
    except OverflowError:
        return False


def number_kinds_of_result(op: str, operands: Sequence[Any], dtype: Any) -> list[Kind]:
    """All that row `op` gives as a function of NumPy's, which makes numbers of NumPy's."""
    found: dict[Kind, None] = {}
    for kinds in product(*map(number_kinds_of_operand, operands)):
        with suppress(TypeError):  # an error there
            found[numpy_result_dtype_of_kinds(op, kinds, dtype), None] = None
    return [*found]


def numpy_result_dtype_of_kinds(op: str, kinds: Sequence[Kind], dtype: Any = None) -> DType:
    """What NumPy's function gives of numbers of one kind each. Raises TypeError."""
    numbers = all(weak is not None for _, weak in kinds)
    given = [d for d, _ in kinds] if numbers else dtypes_or_types_of_number_kinds(kinds)
    return resolve_op_row_dtypes(OPS[op], given, dtype)[1]


def with_other_number_kinds(value: Value, kinds: Sequence[Kind]) -> Value:
    """The value as one of these kinds. Raises UnsupportedError where what becomes of it has one dtype or another."""
    if have_number_kinds_two_dtypes(kinds) or (value.shape and len({d for d, _ in kinds}) > 1):
        names = " or ".join(sorted({str(d) for d, _ in kinds}))
        raise UnsupportedError(
            f"this is {names}, since a number in it is one of Python's or an array's, as a traced value decides; give "
            "both one dtype, as np.float32(...) or np.maximum(x, y) do"
        )
    if value.shape:
        return value
    held = value.dtype, value.weak
    return Value(value.number, value.type, value.weak, tuple(k for k in kinds if k != held))


# numbers that are not what they are held as, as values decide: Python's, where that is an array's, or an int, where it
# is a float

Flag = Value | bool
# rows of operators that give an int of ints alone
_WHOLE_OF_WHOLE = frozenset(
    {"add", "subtract", "multiply", "floor_divide", "remainder", "negative", "positive", "absolute"}
)


def note_joined_number(trace: Trace, a: Any, b: Any, like: Value, join: Callable[..., Any]) -> Callable[[Value], None]:
    """Of two numbers that a branch joins, what notes when the joined one is not what it is held as. join: what joins
    two nodes."""
    flags = [flag_of_operand(trace, x, like) for x in (a, b)]
    if not like.others or None in flags:
        return lambda value: None
    joined = join(*(x if isinstance(x, Value) else trace.builder.const(np.bool_(x)) for x in flags))

    def note(value: Value) -> None:
        trace.differing[value.number] = joined()

    return note


def note_operator_result(trace: Trace, row: str, operands: Sequence[Any], result: Value) -> None:
    """Of what an operator gives of numbers, notes when it is not what it is held as."""
    if not result.others or not is_kind_of_operands(row, result.weak):
        return
    flags = [flag for x in operands if (flag := flag_of_operand(trace, x, result)) is not True]
    if flags and all(isinstance(flag, Value) for flag in flags):
        trace.differing[result.number] = reduce(partial(trace.builder.map, "logical_and"), flags)


def is_kind_of_operands(row: str, weak: WeakType | None) -> bool:
    """Whether an operator's result is not what it is held as where none of its operands are."""
    return weak is None or row in _WHOLE_OF_WHOLE


def may_number_differ(kinds: Sequence[Kind]) -> bool:
    """Whether a number of these kinds, held as the first, may be one that compiled code would give as another."""
    (dtype, _), *others = kinds
    return any(weak in (int, bool) for _, weak in others) or bool(others and dtype != np.float64)


def is_held_otherwise(kinds: Iterable[Kind], held: Kind) -> bool | None:
    """Whether a number of these kinds is not what it is held as; None where its value decides."""
    found = {_differs(weak, held[1] is None) for _, weak in kinds}
    return found.pop() if len(found) == 1 else None


def flag_of_operand(trace: Trace, x: Any, like: Value) -> Flag | None:
    """Whether an operand is not what `like` is held as; None where no node says so."""
    known = is_held_otherwise(number_kinds_of_operand(x), (like.dtype, like.weak))
    return trace.differing.get(x.number) if known is None else known


def _differs(weak: WeakType | None, held_as_arrays: bool) -> bool:
    return weak is not None if held_as_arrays else weak in (int, bool)
