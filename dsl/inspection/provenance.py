"""Which of the user's lines a node or a task comes from: lines in; numbered paths and source text out."""

from __future__ import annotations

import linecache
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ...compiler.graph.graph import Graph
from ..core.errors import SourceLocation, call_paths_of_user_line, show_file, show_user_line

AROUND = 5  # lines shown before and after those that are used


class SourcePaths:
    """The paths of everything that is shown, each once, as plain data: `paths` of [file, line, column, end column,
    function], the outermost call first, and `files` with the text around their lines. `source`: whether with text."""

    def __init__(self, source: bool = True) -> None:
        self.source = source
        self.paths: list[list[list[Any]]] = []
        self._numbers: dict[tuple[SourceLocation, ...], int] = {}
        self._files: dict[str, int] = {}
        self._known: dict[int, tuple[str, list[int]]] = {}  # by the line's identity: equal text may have other paths

    def of_nodes(self, graph: Graph, nodes: Iterable[int]) -> list[int]:
        """The paths that some nodes come from, the one of the most nodes first."""
        found: Counter[int] = Counter()
        for node in nodes:
            found.update(self.of_line(graph.lines[node] if graph.lines else ""))
        return [path for path, _ in found.most_common()]

    def of_line(self, line: str) -> list[int]:
        """The paths of a node's line, which may name several."""
        known = self._known.get(id(line))
        if known is None:
            found = [n for path in call_paths_of_user_line(line) if (n := self._number_of_source_path(path)) >= 0]
            known = self._known[id(line)] = line, found
        return known[1]

    def _number_of_source_path(self, path: tuple[SourceLocation, ...]) -> int:
        if not path:
            return -1
        number = self._numbers.get(path)
        if number is None:
            number = self._numbers[path] = len(self.paths)
            self.paths.append([self._location_as_plain_data(place) for place in path])
        return number

    def _location_as_plain_data(self, place: SourceLocation) -> list[Any]:
        file = self._files.setdefault(place.file, len(self._files))
        return [file, place.line, place.column, place.end_column, place.function]

    def text(self, paths: Sequence[int]) -> str:
        """The source text of the first path's innermost line, without indentation. It is where the paths of that line
        point to."""
        if not paths or not self.source:
            return ""
        file, line, *_ = self.paths[paths[0]][-1]
        spans = [place[2:4] for path in paths if (place := self.paths[path][-1])[:2] == [file, line]]
        text = linecache.getline(list(self._files)[file], line)
        if any(-1 in span for span in spans):  # of several lines, or Python does not say
            return text.strip()
        columns = slice(min(start for start, _ in spans), max(end for _, end in spans))
        return text.encode()[columns].decode(errors="replace").strip()

    def short(self, path: int) -> str:
        """`file.py:12` of the innermost line."""
        file, line, *_ = self.paths[path][-1]
        return show_user_line(list(self._files)[file], line)

    def files(self) -> list[dict[str, Any]]:
        """Each file's name, and those of its lines that stand near one that is used."""
        return [
            {"name": _relative_file_name_for_report(name), "lines": list(self._source_lines_of_file(name, i))}
            for name, i in self._files.items()
        ]

    def _source_lines_of_file(self, name: str, number: int) -> Iterator[list[Any]]:
        used = sorted({place[1] for path in self.paths for place in path if place[0] == number})
        text = linecache.getlines(name) if self.source else []
        shown = {line for at in used for line in range(at - AROUND, at + AROUND + 1)}
        for line in sorted(shown):
            if 1 <= line <= len(text):
                yield [line, text[line - 1].rstrip("\n")]
            elif line in used:
                yield [line, ""]


def _relative_file_name_for_report(name: str) -> str:
    """A file's name: relative to where the program runs if it is below that, else its last part alone."""
    try:
        relative = os.path.relpath(name)
    except ValueError:  # another drive
        return show_file(name)
    return show_file(name) if relative.startswith("..") else relative
