"""Lists, dicts and objects of which a traced value chooses one: a copy stands for the chosen one while it is read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..core.errors import TraceError, user_line
from ..core.object_model import are_same_objects, parts_of_object


class ChosenContainers:
    """What was chosen among, and what stands for it: nothing may be written to any of these.

    What is written to one of them would have to be in another one too, or not, as the value decides."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, list[Any], str]] = {}  # itself, what it held then, the line

    def note(self, containers: Iterable[Any]) -> None:
        for container in containers:
            if id(container) not in self._known:
                self._known[id(container)] = container, parts_of_object(container), user_line()

    def is_chosen(self, x: Any) -> bool:
        return id(x) in self._known

    def check_unchanged(self) -> None:
        """Raises TraceError where one was written to."""
        for container, then, line in self._known.values():
            if not are_same_objects(parts_of_object(container), then):
                raise TraceError(
                    f"a traced value decides which {type(container).__name__} this is, and one of them is written to; "
                    "copy it, or choose among what it holds",
                    line,
                    needs_values=True,
                )
