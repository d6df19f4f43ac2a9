"""Lists, dicts and objects of which a traced value chooses one: a copy stands for the chosen one while it is read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..core.errors import TraceError, user_line


class ChosenContainers:
    """What was chosen among, and what stands for it: nothing may be written to any of these.

    What is written to one of them would have to be in another one too, or not, as the value decides."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, Any, Any, str]] = {}  # itself, what holds its parts, those then, the line

    def note(self, containers: Iterable[tuple[Any, Any]]) -> None:
        """containers: each with the list or dict that holds its parts."""
        line = ""
        for container, holder in containers:
            if id(container) not in self._known:
                line = line or user_line()
                self._known[id(container)] = container, holder, _parts(holder), line

    def is_chosen(self, x: Any) -> bool:
        return id(x) in self._known

    def check_unchanged(self) -> None:
        """Raises TraceError where one was written to."""
        for container, holder, then, line in self._known.values():
            now = _parts(holder)
            if len(now) != len(then) or any(x is not y for x, y in zip(now, then, strict=True)):
                raise TraceError(
                    f"a traced value decides which {type(container).__name__} this is, and one of them is written to; "
                    "copy it, or choose among what it holds",
                    line,
                    needs_values=True,
                )


def _parts(holder: Any) -> list[Any]:
    return [x for pair in holder.items() for x in pair] if isinstance(holder, dict) else [*holder]
