"""The syntax tree of a function that exists: a code object in, the tree that it was compiled from out."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from types import CodeType

from ...runtime.core.frozen import frozen

FunctionNode = ast.FunctionDef | ast.Lambda
ENDS = 4  # ends of a statement that are tried: a decorator, or a bracket on a line of its own, is none
_INDENTED = " \t\r\n\f#"  # how lines begin that begin no statement of the file
_FUTURES = 0x1FF0000  # the flags of `from __future__ import ...` in co_flags


@frozen
class FunctionSource:
    """A function's tree, and the class that its private names belong to ("" for none)."""

    node: FunctionNode
    owner: str


class SourceUnavailable(Exception):
    """There is no source, or it is not what the code object was compiled from."""


def syntax_tree_of_function(code: CodeType) -> FunctionSource:
    """The tree of a function's code. Raises NoSource, saying why."""
    lines = linecache.getlines(code.co_filename)
    if not lines:
        raise SourceUnavailable("its source is not there")
    for text in _texts_around_line(lines, code.co_firstlineno):
        try:
            found = _parse_source_text(code.co_filename, text, code.co_flags & _FUTURES)
        except SyntaxError:
            continue
        if code not in found.codes:
            continue
        places = found.nodes.get((code.co_name, code.co_firstlineno), [])
        if len(places) > 1:
            places = _places_around_code(code, places)
        if len(places) != 1:
            raise SourceUnavailable("several functions of its name stand on its line; give each a line of its own")
        return places[0]
    raise SourceUnavailable("its source has changed, or is made while it is imported")


def _places_around_code(code: CodeType, places: list[FunctionSource]) -> list[FunctionSource]:
    """Of functions that begin on one line, the innermost that holds all columns that the code notes."""
    noted = [p for p in code.co_positions() if None not in p and p[::2] != p[1::2]]  # without the empty one of a start
    if not noted:
        return places
    first = min((line or 0, column or 0) for line, _, column, _ in noted)
    last = max((line or 0, column or 0) for _, line, _, column in noted)

    def extent(place: FunctionSource) -> tuple[tuple[int, int], tuple[int, int]]:
        node = place.node
        return (node.lineno, node.col_offset), (node.end_lineno or 0, node.end_col_offset or 0)

    around = [place for place in places if extent(place)[0] <= first and last <= extent(place)[1]]
    return sorted(around, key=extent)[-1:]


def _texts_around_line(lines: list[str], line: int) -> Iterator[str]:
    """What may be the file's statement around a line, in its place, and at last the file: it takes long to parse. The
    imports come before the statement, since calls of what they import are compiled otherwise."""
    start = next((n for n in range(min(line, len(lines)), 0, -1) if lines[n - 1][0] not in _INDENTED), 0)
    if start > 1:
        before = "; ".join(_imports_of_file(lines)) + "\n" * (start - 1)
        ends = (n for n in range(line + 1, len(lines) + 1) if lines[n - 1][0] not in _INDENTED)
        for end in (*islice(ends, ENDS), len(lines) + 1)[:ENDS]:
            yield before + "".join(lines[start - 1 : end - 1])
    yield "".join(lines)


def _imports_of_file(lines: list[str]) -> Iterator[str]:
    """The imports that begin a line, each as one line."""
    rest = iter(lines)
    for line in rest:
        if line.startswith(("import ", "from ")) and not line.startswith("from __future__"):
            text = line.partition("#")[0].strip()
            while text.endswith("\\") or text.count("(") > text.count(")"):
                text = text.removesuffix("\\") + next(rest, ")").partition("#")[0].strip()
            yield text


@frozen
class _ParsedText:
    codes: frozenset[CodeType]
    nodes: dict[tuple[str, int], list[FunctionSource]]


@lru_cache(maxsize=256)
def _parse_source_text(filename: str, text: str, futures: int) -> _ParsedText:
    """Raises SyntaxError."""
    tree = ast.parse(text, filename)
    compiled = compile(tree, filename, "exec", futures, dont_inherit=True)
    nodes: dict[tuple[str, int], list[FunctionSource]] = {}
    for source in _functions_in_tree(tree, ""):
        node = source.node
        name = "<lambda>" if isinstance(node, ast.Lambda) else node.name
        decorators = [] if isinstance(node, ast.Lambda) else node.decorator_list
        line = min([node.lineno, *(d.lineno for d in decorators)])
        nodes.setdefault((name, line), []).append(source)
    return _ParsedText(frozenset(_codes_in_source_code(compiled)), nodes)


def _functions_in_tree(tree: ast.AST, owner: str) -> Iterator[FunctionSource]:
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, (ast.FunctionDef, ast.Lambda)):
            yield FunctionSource(child, owner)
        yield from _functions_in_tree(child, child.name if isinstance(child, ast.ClassDef) else owner)


def _codes_in_source_code(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes_in_source_code(constant)
