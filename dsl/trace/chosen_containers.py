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
        self._choices: dict[int, tuple[Any, Any]] = {}  # of each copy what it stands for

    @property
    def notes(self) -> tuple[dict[int, Any], ...]:
        """All that is noted."""
        return self._known, self._choices

    def note(self, containers: Iterable[Any]) -> None:
        for container in containers:
            if id(container) not in self._known:
                self._known[id(container)] = container, parts_of_object(container), user_line()

    def note_copy(self, copy: Any, a: Any, b: Any) -> None:
        """A copy that stands for one of two containers."""
        self.note((a, b, copy))
        self._choices[id(copy)] = a, b

    def is_chosen(self, x: Any) -> bool:
        return id(x) in self._known

    def check_kept(self, x: Any, world: Any) -> None:
        """Raises TraceError where a call would give or store a copy in place of a container that was there before: the
        copy is another one, and has of an object what was read alone. world: what knows of those, if anything."""
        if id(x) not in self._choices:
            return
        todo, seen = [x], set[int]()
        while todo:
            value = todo.pop()
            if id(value) in seen:
                continue
            seen.add(id(value))
            if value is not x and world.was_there(value):
                raise TraceError(
                    f"a traced value decides which {type(x).__name__} is returned or stored", self._known[id(x)][2]
                )
            todo += self._choices.get(id(value), ())

    def check_unchanged(self) -> None:
        """Raises TraceError where one was written to."""
        for container, then, line in self._known.values():
            if not are_same_objects(parts_of_object(container), then):
                raise TraceError(
                    f"a traced value decides which {type(container).__name__} this is, and one of them is written to; "
                    "copy it, or choose among what it holds",
                    line,
                )
