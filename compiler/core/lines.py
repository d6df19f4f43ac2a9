"""Lines of the user's text that nodes and tasks come from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class Line(str):
    """`file.py:12`, or several such lines. places: for each, what the front end knows of it; passes carry it along."""

    __slots__ = ("places",)
    places: tuple[Any, ...]

    def __new__(cls, text: str, places: tuple[Any, ...] = ()) -> Line:
        line = super().__new__(cls, text)
        line.places = places
        return line

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str(self),)


def joined_lines(lines: Iterable[str]) -> Line:
    """Several lines as one, each once."""
    every = {line: line for line in lines if line}
    return Line(", ".join(every), tuple(place for line in every for place in getattr(line, "places", ())))
