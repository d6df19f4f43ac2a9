"""Integers that are linear in symbols with known bounds, such as the turns of loops; what can be proved of them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from ...compiler.kernel.body_builder import KernelValue
from ...runtime.core.frozen import dataclass
from ..trace.trace import LoopNotRecordable

_order = count()


class LoopIntegerAtom:
    """An int64 value of the routine: no less than each of `lows`, no more than each of `highs`, of earlier atoms."""

    __slots__ = ("highs", "lows", "order", "value")

    def __init__(
        self, value: KernelValue, lows: Sequence[LinearExpression] = (), highs: Sequence[LinearExpression] = ()
    ) -> None:
        self.order, self.value, self.lows, self.highs = next(_order), value, tuple(lows), tuple(highs)


@dataclass(frozen=True)
class LinearExpression:
    """`constant + sum(factor * atom)`; atoms in the order in which they were made, none with the factor 0."""

    constant: int
    terms: tuple[tuple[LoopIntegerAtom, int], ...] = ()

    def __add__(self, other: LinearExpression | int) -> LinearExpression:
        if isinstance(other, int):
            return LinearExpression(self.constant + other, self.terms)
        found = dict(self.terms)
        for atom, factor in other.terms:
            found[atom] = found.get(atom, 0) + factor
        terms = sorted(((a, f) for a, f in found.items() if f), key=lambda term: term[0].order)
        return LinearExpression(self.constant + other.constant, tuple(terms))

    def __neg__(self) -> LinearExpression:
        return self * -1

    def __sub__(self, other: LinearExpression | int) -> LinearExpression:
        return self + (-other)

    def __mul__(self, factor: int) -> LinearExpression:
        if not factor:
            return LinearExpression(0)
        return LinearExpression(self.constant * factor, tuple((a, f * factor) for a, f in self.terms))

    @property
    def known(self) -> int | None:
        """The number, where no atom decides it."""
        return None if self.terms else self.constant

    @property
    def least(self) -> int | None:
        """A number that it is never below."""
        if not self.terms:
            return self.constant
        *rest, (atom, factor) = self.terms
        bounds = atom.lows if factor > 0 else atom.highs
        least = [(LinearExpression(self.constant, tuple(rest)) + bound * factor).least for bound in bounds]
        return max((n for n in least if n is not None), default=None)

    @property
    def greatest(self) -> int | None:
        """A number that it is never above."""
        found = (-self).least
        return None if found is None else -found

    def is_at_least(self, other: LinearExpression | int) -> bool:
        """Whether that is proved."""
        least = (self - other).least
        return least is not None and least >= 0


def product_of_integers(a: Any, b: Any) -> Any:
    """Of numbers and linear ones. Raises LoopNotRecordable where it is not linear."""
    if isinstance(b, int):
        return a * b
    if isinstance(a, int):
        return b * a
    found = _multiply(a, b)
    if found is None:
        raise LoopNotRecordable("a view of a view whose step differs from turn to turn")
    return found


def _multiply(a: LinearExpression, b: LinearExpression) -> LinearExpression | None:
    if a.known is not None:
        return b * a.known
    return a * b.known if b.known is not None else None


def _is_less(a: LinearExpression, b: LinearExpression) -> bool | None:
    return True if b.is_at_least(a + 1) else False if a.is_at_least(b) else None


def _is_equal(a: LinearExpression, b: LinearExpression) -> bool | None:
    return True if (a - b).known == 0 else False if _is_less(a, b) or _is_less(b, a) else None


def _opposite(known: bool | None) -> bool | None:
    return None if known is None else not known


# rows on linear integers: another one, what is known of a comparison, or None
RULES: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": _multiply,
    "negative": operator.neg,
    "positive": lambda a: a,
    "absolute": lambda a: a if a.is_at_least(0) else -a if (-a).is_at_least(0) else None,
    "less": _is_less,
    "less_equal": lambda a, b: _opposite(_is_less(b, a)),
    "greater": lambda a, b: _is_less(b, a),
    "greater_equal": lambda a, b: _opposite(_is_less(a, b)),
    "equal": _is_equal,
    "not_equal": lambda a, b: _opposite(_is_equal(a, b)),
    "floor_divide": lambda a, b: LinearExpression(a.known // b.known) if a.known is not None and b.known else None,
    "remainder": lambda a, b: LinearExpression(a.known % b.known) if a.known is not None and b.known else None,
}
