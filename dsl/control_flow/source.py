"""The syntax tree of a function that exists: a code object in, the tree that it was compiled from out."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator
from types import CodeType

from ...runtime.core.frozen import dataclass

FunctionNode = ast.FunctionDef | ast.Lambda
_FUTURES = 0x1FF0000  # the flags of `from __future__ import ...` in co_flags


@dataclass(frozen=True, slots=True)
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
    text = "".join(lines)
    found = _parse_source_file(code.co_filename, text, code.co_flags & _FUTURES)
    if code not in found.codes:
        raise SourceUnavailable("its source has changed, or is made while it is imported")
    places = found.nodes.get((code.co_name, code.co_firstlineno), [])
    if len(places) != 1:
        raise SourceUnavailable("several functions of its name stand on its line")
    return places[0]


@dataclass(frozen=True, slots=True)
class _ParsedFile:
    codes: frozenset[CodeType]
    nodes: dict[tuple[str, int], list[FunctionSource]]


_FILES: dict[tuple[str, int], tuple[str, _ParsedFile]] = {}


def _parse_source_file(filename: str, text: str, futures: int) -> _ParsedFile:
    known = _FILES.get((filename, futures))
    if known is not None and known[0] == text:
        return known[1]
    try:
        tree = ast.parse(text, filename)
        compiled = compile(tree, filename, "exec", futures, dont_inherit=True)
    except SyntaxError:
        raise SourceUnavailable("its source has changed") from None
    nodes: dict[tuple[str, int], list[FunctionSource]] = {}
    for source in _functions_in_tree(tree, ""):
        node = source.node
        name = "<lambda>" if isinstance(node, ast.Lambda) else node.name
        decorators = [] if isinstance(node, ast.Lambda) else node.decorator_list
        line = min([node.lineno, *(d.lineno for d in decorators)])
        nodes.setdefault((name, line), []).append(source)
    found = _ParsedFile(frozenset(_codes_in_source_code(compiled)), nodes)
    _FILES[filename, futures] = (text, found)
    return found


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
