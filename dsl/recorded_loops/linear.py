"""Integers that are linear in symbols with known bounds, such as the turns of loops; what can be proved of them."""

from __future__ import annotations

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
        found = (
            _least_of_linear_loop_expression(LinearExpression(self.constant, tuple(rest)) + b * factor) for b in bounds
        )
        return max((f for f in found if f is not None), default=None)

    @property
    def greatest(self) -> int | None:
        """A number that it is never above."""
        found = (-self).least
        return None if found is None else -found

    def is_at_least(self, other: LinearExpression | int) -> bool:
        """Whether that is proved."""
        least = (self - other).least
        return least is not None and least >= 0


def _least_of_linear_loop_expression(x: LinearExpression) -> int | None:
    return x.least


def _add_linear_loop_expressions(a: LinearExpression, b: LinearExpression) -> LinearExpression:
    return a + b


def _subtract_linear_loop_expressions(a: LinearExpression, b: LinearExpression) -> LinearExpression:
    return a - b


def product_of_integers(a: Any, b: Any) -> Any:
    """Of numbers and linear ones. Raises LoopNotRecordable where it is not linear."""
    if isinstance(b, int):
        return a * b
    if isinstance(a, int):
        return b * a
    found = _multiply_linear_loop_expressions(a, b)
    if found is None:
        raise LoopNotRecordable("a view of a view whose step differs from turn to turn")
    return found


def _multiply_linear_loop_expressions(a: LinearExpression, b: LinearExpression) -> LinearExpression | None:
    if a.known is not None:
        return b * a.known
    return a * b.known if b.known is not None else None


def _linear_loop_comparison(
    at_least: Callable[[LinearExpression, LinearExpression], bool],
    never: Callable[[LinearExpression, LinearExpression], bool],
) -> Any:
    def compare_linear_loop_expressions(a: LinearExpression, b: LinearExpression) -> bool | None:
        return True if at_least(a, b) else False if never(a, b) else None

    return compare_linear_loop_expressions


def _is_linear_less(a: LinearExpression, b: LinearExpression) -> bool:
    return b.is_at_least(a + 1)


def _is_loop_expression_less_or_equal(a: LinearExpression, b: LinearExpression) -> bool:
    return b.is_at_least(a)


def _is_linear_different(a: LinearExpression, b: LinearExpression) -> bool:
    return _is_linear_less(a, b) or _is_linear_less(b, a)


# rows on linear integers: another one, what is known of a comparison, or None
RULES: dict[str, Callable[..., Any]] = {
    "add": _add_linear_loop_expressions,
    "subtract": _subtract_linear_loop_expressions,
    "multiply": _multiply_linear_loop_expressions,
    "negative": lambda a: -a,
    "positive": lambda a: a,
    "absolute": lambda a: a if a.is_at_least(0) else -a if (-a).is_at_least(0) else None,
    "less": _linear_loop_comparison(_is_linear_less, lambda a, b: _is_loop_expression_less_or_equal(b, a)),
    "less_equal": _linear_loop_comparison(_is_loop_expression_less_or_equal, lambda a, b: _is_linear_less(b, a)),
    "greater": _linear_loop_comparison(lambda a, b: _is_linear_less(b, a), _is_loop_expression_less_or_equal),
    "greater_equal": _linear_loop_comparison(lambda a, b: _is_loop_expression_less_or_equal(b, a), _is_linear_less),
    "equal": _linear_loop_comparison(lambda a, b: (a - b).known == 0, _is_linear_different),
    "not_equal": _linear_loop_comparison(_is_linear_different, lambda a, b: (a - b).known == 0),
    "floor_divide": lambda a, b: LinearExpression(a.known // b.known) if a.known is not None and b.known else None,
    "remainder": lambda a, b: LinearExpression(a.known % b.known) if a.known is not None and b.known else None,
}
