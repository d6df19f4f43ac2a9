"""The tree of a function is that of its whole file, though only the statement around it is parsed."""

from __future__ import annotations

import argparse
import ast
import collections
import functools
import inspect
import linecache
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, ModuleType

import numpy.lib._function_base_impl as numpy_functions
import pytest

from kernelgraph.dsl.control_flow import source
from kernelgraph.dsl.control_flow.source import SourceUnavailable, syntax_tree_of_function

ODD = '''"""A file whose lines tell little."""
from __future__ import annotations
import os.path as p, json
from math import (  # of these
    sin,
    cos,  # and this
)
import functools; import math
from collections import \\
    deque

@functools.lru_cache(
    maxsize=2
)
@functools.wraps(
    sin
)
def decorated(x):
    return p.join(x, json.dumps(math.sin(x)))

class Private:
    """
text at the beginning of a line
def decorated(x):
    """
    def __hidden(self):
        self.__x = """
also here
""" + str(deque())
# and a comment
        return lambda: self.__x

if cos:
    def inner(x):
        def deeper():
            return math.cos(x)
        return deeper
else:
    def inner(x):
        return json

table = [
    lambda x: json.dumps(x),
    (lambda x:
math.sin(x)),
]
last = lambda: p.join'''


def codes_in(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from codes_in(constant)


def check_trees(filename: str, text: str) -> int:
    """How many functions of a file are found; each has the tree that it has in the whole."""
    whole: dict[tuple[str, int], list[ast.AST]] = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.Lambda)):
            named = isinstance(node, ast.FunctionDef)
            line = min([node.lineno, *(d.lineno for d in (node.decorator_list if named else []))])
            whole.setdefault((node.name if named else "<lambda>", line), []).append(node)
    count = 0
    for code in codes_in(compile(text, filename, "exec", dont_inherit=True)):
        trees = whole.get((code.co_name, code.co_firstlineno), [])
        if len(trees) == 1:
            found = syntax_tree_of_function(code)
            assert ast.dump(found.node, include_attributes=True) == ast.dump(trees[0], include_attributes=True)
            count += 1
        else:
            with pytest.raises(SourceUnavailable):
                syntax_tree_of_function(code)
    return count


@pytest.mark.parametrize("module", [argparse, collections, functools, inspect, numpy_functions, source])
def test_trees_are_those_of_the_whole_file(module: ModuleType) -> None:
    assert module.__file__ is not None
    assert check_trees(module.__file__, Path(module.__file__).read_text()) > 5


def test_trees_of_a_file_whose_lines_tell_little(tmp_path: Path) -> None:
    path = tmp_path / "odd.py"
    path.write_text(ODD)
    assert check_trees(str(path), ODD) == 9
    assert {
        syntax_tree_of_function(code).owner
        for code in codes_in(compile(ODD, str(path), "exec"))
        if "Private" in code.co_qualname and code.co_name != "Private"
    } == {"Private"}


def test_a_function_of_a_long_file_is_found_without_parsing_it(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "import math\n\n" + "".join(f"def f{i}(x):\n    return math.sin(x + {i})\n\n" for i in range(300))
    monkeypatch.setitem(linecache.cache, "<long>", (len(text), None, text.splitlines(True), "<long>"))
    parsed: list[int] = []
    parse = ast.parse
    monkeypatch.setattr(ast, "parse", lambda text, *args: parsed.append(len(text)) or parse(text, *args))
    for code in [*codes_in(compile(text, "<long>", "exec", dont_inherit=True))][::50]:
        syntax_tree_of_function(code)
    assert len(parsed) == 6 and max(parsed) < 1100


def test_a_file_that_has_changed_has_no_trees(tmp_path: Path) -> None:
    path = tmp_path / "changed.py"
    path.write_text("import math\n\ndef f(x):\n    return math.cos(x)\n")
    (code,) = codes_in(compile("import math\n\ndef f(x):\n    return math.sin(x)\n", str(path), "exec"))
    with pytest.raises(SourceUnavailable):
        syntax_tree_of_function(code)
    path.write_text("import math\n\ndef f(x)\n    return math.sin(x)\n")
    linecache.checkcache(str(path))
    with pytest.raises(SourceUnavailable):
        syntax_tree_of_function(code)


LAMBDAS = {
    "a, b = (lambda x: x if x else -x), (lambda x: x and 2)\n": ["x if x else -x", "x and 2"],
    "a, b = [lambda x: x or 1, lambda x: x or 2]\n": ["x or 1", "x or 2"],
    "a = lambda x: (lambda x: x or 1)(x)\nb = a\n": ["(lambda x: x or 1)(x)"] * 2,
    "a = (lambda x: lambda x: x or 1)(0)\nb = lambda: 0\n": ["x or 1", "0"],
    "a, b = {'ä': lambda x: x or 1}.popitem()[1], (lambda\n    x:\n    x or\n    3)\n": ["x or 1", "x or 3"],
    "a, b = (lambda: 1), (lambda: 2)\n": ["1", "2"],
    "pick = lambda f, g: (f, g)\na, b = pick(lambda x: x[0], lambda x: x[1])\n": ["x[0]", "x[1]"],
}


@pytest.mark.parametrize("text", LAMBDAS)
def test_functions_of_one_line_are_told_apart_by_columns(text: str) -> None:
    name, namespace = f"<lambdas {text!r}>", {}
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    exec(compile(text, name, "exec"), namespace)
    for function, body in zip((namespace["a"], namespace["b"]), LAMBDAS[text], strict=True):
        node = syntax_tree_of_function(function.__code__).node
        assert isinstance(node, ast.Lambda) and ast.unparse(node.body) == body
