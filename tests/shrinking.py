"""Making a random case that went wrong smaller, one choice left out after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeVar


class Wrong(Protocol):
    """An outcome; wrong: in words, what differed, if anything did."""

    @property
    def wrong(self) -> str: ...


C = TypeVar("C")
O = TypeVar("O", bound=Wrong)  # noqa: E741


def shrunk(
    case: C,
    outcome_of: Callable[[C], O],
    smaller: Callable[[C], Iterable[C]],
    mechanism: Callable[[O], Any],
) -> tuple[C, O]:
    """The smallest case found that is still wrong in the same way, and its outcome.

    smaller: the cases that lack one thing. mechanism: the way in which an outcome is wrong."""
    best, found = case, outcome_of(case)
    kind, going = mechanism(found), bool(found.wrong)
    while going:
        going = False
        for candidate in smaller(best):
            outcome = outcome_of(candidate)
            if outcome.wrong and mechanism(outcome) == kind:
                best, found, going = candidate, outcome, True
                break
    return best, found
