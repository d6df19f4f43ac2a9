"""Where each node of a trace was asked for: the calls of the user's functions that led there, with columns."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from types import CodeType, FrameType

from ...runtime.core.frozen import dataclass
from .errors import is_user_file


@dataclass(frozen=True, slots=True)
class Place:
    """A stretch of the user's text. column, end_column: in bytes of that line, -1 where Python does not say."""

    file: str
    line: int
    column: int
    end_column: int
    function: str


class Places:
    """The places of one trace. `mark` is what a graph's builder takes as `where`: the lines of its nodes are then
    marks, which passes carry as they carry lines, and `paths` says what each stands for."""

    def __init__(self) -> None:
        self.paths: list[tuple[Place, ...]] = []
        self._numbers: dict[tuple[Place, ...], int] = {}

    def mark(self) -> str:
        """A mark of the place that runs now: the innermost call comes last in its path."""
        path = tuple(_place(code, at) for code, at in reversed(list(_users_frames())))
        number = self._numbers.setdefault(path, len(self.paths))
        if number == len(self.paths):
            self.paths.append(path)
        return f"@{number}"

    def path(self, mark: str) -> tuple[Place, ...]:
        """The path that a mark stands for; of a plain `file:line` that line alone."""
        if mark.startswith("@"):
            return self.paths[int(mark[1:])]
        file, _, line = mark.rpartition(":")
        return (Place(file, int(line), -1, -1, ""),) if line.isdigit() else ()


def _users_frames() -> Iterator[tuple[CodeType, int]]:
    """The user's frames of the trace in progress, the innermost first: code, and byte of the instruction that runs."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if is_user_file(code.co_filename):
            yield code, frame.f_lasti
        elif code.co_name == "trace_function":
            return
        frame = frame.f_back


@lru_cache(4096)
def _place(code: CodeType, at: int) -> Place:
    line, end_line, column, end_column = next(islice(code.co_positions(), at // 2, None), (None,) * 4)
    one = line is not None and line == end_line
    columns = (-1 if column is None else column, end_column if one and end_column is not None else -1)
    return Place(code.co_filename, line or code.co_firstlineno, *columns, code.co_name)
