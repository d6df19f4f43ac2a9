"""What a number is to NumPy's promotion: its dtype, and the Python type that it follows if it is weak."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...compiler.core.types import DType, WeakType
from ...compiler.graph.builder import WEAK_DTYPES
from ..trace.trace import NotFollowed
from ..trace.tracer import SCALAR, TracedNumber, Tracer
from .values import Number

PLAIN = (bool, int, float)


def is_number(x: Any) -> bool:
    """Whether it can be a variable."""
    if type(x) in PLAIN or isinstance(x, Number) or type(x) is TracedNumber:
        return True
    if isinstance(x, Tracer):
        return x._owner == SCALAR
    return isinstance(x, (np.bool_, np.integer, np.floating))


Kind = tuple[DType, WeakType | None]


def kind_of(x: Any) -> Kind:
    if isinstance(x, Number):
        return x.dtype, x.weak
    if isinstance(x, Tracer):
        return x._held.dtype, x._held.weak
    if type(x) is TracedNumber:
        return WEAK_DTYPES[type(x._number)], type(x._number)
    if isinstance(x, np.generic):
        return x.dtype, None
    return WEAK_DTYPES[type(x)], None if type(x) is bool else type(x)


def merged_kind(kinds: Sequence[Kind]) -> Kind:
    """One kind for values of two. Raises NotFollowed where an array's dtype would change."""
    weak = [w for _, w in kinds]
    dtype = np.result_type(*(d if w is None else w(0) for d, w in kinds))
    if all(w is not None for w in weak):
        return WEAK_DTYPES[float if float in weak else int], float if float in weak else int
    if any(d != dtype for d, w in kinds if w is None):
        raise NotFollowed("a name holds numbers of two dtypes")
    return dtype, None


def grown_kind(kinds: Sequence[Kind]) -> Kind:
    """The kind of what begins as the first and is the second after a turn."""
    if len(kinds) == 1:
        return kinds[0]
    (first, weak), (dtype, later) = kinds
    if weak is None:
        kept = np.result_type(first, later(0)) if later is not None else dtype
        if kept != first:
            raise NotFollowed("a name begins as a number of one dtype, and is of another one after a turn")
        return first, None
    if later is not None:
        return merged_kind(kinds)
    return np.result_type(dtype, weak(0)), None


def check_start(start: Any, kind: Kind) -> None:
    """Raises NotFollowed where a Python number, which a loop without turns leaves as it is, may lose digits so."""
    began = kind_of(start)[1]
    if began is None or kind[1] is not None or np.can_cast(WEAK_DTYPES[began], kind[0]):
        return
    if type(start) not in PLAIN or kind[0].type(start) != start:
        raise NotFollowed("a name begins as a Python number, and is one of a narrower dtype after a turn")


def zero_like(x: Any) -> Any:
    """What stands for a value that is not set: it is not read."""
    if isinstance(x, Number) or is_number(x):
        dtype, weak = kind_of(x)
        return weak(0) if weak is not None else dtype.type(0)
    return x
