"""What a number is to NumPy's promotion: its dtype, and the Python type that it follows if it is weak; or one kind or
another, as values decide."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any, TypeAlias

import numpy as np

from ...compiler.core.types import DType, WeakType
from ...compiler.graph.builder import WEAK_DTYPES
from ...compiler.graph.graph import Value
from ...compiler.ops.table import OPS, resolve_op_row_dtypes
from ..core.errors import UnsupportedError

Kind: TypeAlias = tuple[DType, WeakType | None]
FLOATS, WHOLE = "fc", "biu"
WEAK_TYPES: dict[str, WeakType] = {"i": int, "f": float, "c": complex}  # by the kind of what operators give


def number_kinds_of_operand(x: Any) -> tuple[Kind, ...]:
    """All that a node or a number that is known may be; the first is what it is held as."""
    if isinstance(x, Value):
        return ((x.dtype, x.weak), *x.others)
    if isinstance(x, np.generic):
        return ((x.dtype, None),)
    return ((WEAK_DTYPES[type(x)], None if type(x) is bool else type(x)),)


def have_number_kinds_two_dtypes(kinds: Iterable[Kind]) -> bool:
    """Whether what is computed from a number of these kinds may have two dtypes."""
    strong = {dtype for dtype, weak in kinds if weak is None}
    return any(len([d for d in strong if d.kind in same]) > 1 for same in (FLOATS, WHOLE))


def number_kinds_of_result(op: str, operands: Sequence[Any], dtype: Any, by_operator: bool) -> list[Kind]:
    """All that row `op` gives: an operator makes numbers of Python's of these alone, a function numbers of NumPy's."""
    found: dict[Kind, None] = {}
    for kinds in product(*map(number_kinds_of_operand, operands)):
        numbers = all(weak is not None for _, weak in kinds)
        given = tuple(d if weak is None or numbers else weak for d, weak in kinds)
        try:
            _, result = resolve_op_row_dtypes(OPS[op], given, dtype)
        except TypeError:
            continue  # an error there
        found[result, WEAK_TYPES.get(result.kind) if numbers and by_operator else None] = None
    return [*found]


def with_other_number_kinds(value: Value, kinds: Sequence[Kind]) -> Value:
    """The value as one of these kinds. Raises UnsupportedError where what becomes of it has one dtype or another."""
    if have_number_kinds_two_dtypes(kinds) or (value.shape and len({d for d, _ in kinds}) > 1):
        names = " or ".join(sorted({str(d) for d, _ in kinds}))
        raise UnsupportedError(
            f"this is {names}, since a number in it is one of Python's or an array's, as a traced value decides; give "
            "both one dtype, as np.float32(...) or np.maximum(x, y) do",
            needs_values=True,
        )
    if value.shape:
        return value
    held = value.dtype, value.weak
    return Value(value.number, value.type, value.weak, tuple(k for k in kinds if k != held))
