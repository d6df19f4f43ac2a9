"""Where each node of a trace was asked for: the calls of the user's functions that led there, with columns."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import lru_cache
from itertools import islice
from types import CodeType, FrameType

from ...compiler.graph.graph import Line
from ...runtime.core.frozen import dataclass
from .errors import USER_FILES, is_user_file, show_line


@dataclass(frozen=True, slots=True)
class SourceLocation:
    """A stretch of the user's text. column, end_column: in bytes of that line, -1 where Python does not say."""

    file: str
    line: int
    column: int
    end_column: int
    function: str


def user_line_reader() -> Callable[[], Line]:
    """What says, at each node of one trace, which of the user's lines runs, and knows the calls that led there."""
    known: dict[tuple[int, ...], Line] = {}
    known_files = USER_FILES.get

    def line_that_runs() -> Line:
        codes: list[CodeType] = []
        key: list[int] = []  # the codes by identity, which takes no time: the lines keep them
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:  # this runs for each node of a trace
            code = frame.f_code
            users = known_files(code.co_filename)
            if users or (users is None and is_user_file(code.co_filename)):
                codes.append(code)
                key += (id(code), frame.f_lasti)
            elif code.co_name == "trace_function":
                break
            frame = frame.f_back
        found = known.get(tuple(key))
        if found is None:
            instructions = tuple(zip(codes, key[1::2], strict=True))
            place = _source_location(*instructions[0]) if instructions else None
            text = "<unknown>" if place is None else show_line(place.file, place.line)
            found = known[tuple(key)] = Line(text, (instructions,))
        return found

    return line_that_runs


def paths_of_line(line: str) -> list[tuple[SourceLocation, ...]]:
    """The calls that led to each of a node's lines, the outermost first; of text that knows none, the line alone."""
    if isinstance(line, Line):  # whose places are codes and bytes in them, the innermost first
        return [
            tuple(_source_location(code, at) for code, at in reversed(instructions)) for instructions in line.places
        ]
    parts = (part.rpartition(":") for part in line.split(", "))
    return [(SourceLocation(file, int(number), -1, -1, ""),) for file, _, number in parts if number.isdigit()]


@lru_cache(4096)
def _source_location(code: CodeType, at: int) -> SourceLocation:
    line, end_line, column, end_column = next(islice(code.co_positions(), at // 2, None), (None,) * 4)
    one = line is not None and line == end_line
    columns = (-1 if column is None else column, end_column if one and end_column is not None else -1)
    return SourceLocation(code.co_filename, line or code.co_firstlineno, *columns, code.co_name)
