"""How many ways through one function there may be. A folder that is not named has no function over `MOST`."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parent.parent
MOST = 20
ALLOWED = {  # functions over `MOST` by folder: lower these as they sink, and leave out a folder that has none
    "dsl/control_flow": 2,
}
BRANCHES = (
    *(ast.If, ast.For, ast.While, ast.IfExp, ast.ExceptHandler),
    *(ast.comprehension, ast.Assert, ast.match_case),
)


def complexity(function: ast.AST) -> int:
    """Decisions and loops within a function, comprehensions and those of functions in it too, and 1."""
    nodes = [*ast.walk(function)]
    operators = sum(len(node.values) - 1 for node in nodes if isinstance(node, ast.BoolOp))
    return 1 + operators + sum(isinstance(node, BRANCHES) for node in nodes)


def functions_over(text: str, most: int = MOST) -> dict[str, int]:
    """The functions of a text that are more complex, by name."""
    functions = (n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))
    return {f"{f.lineno} {f.name}": complexity(f) for f in functions if complexity(f) > most}


def test_no_folder_has_more_complex_functions_than_it_had() -> None:
    found: dict[str, list[str]] = {}
    for layer in ("compiler", "dsl", "runtime"):
        for path in sorted((ROOT / layer).rglob("*.py")):
            folder = path.parent.relative_to(ROOT).as_posix()
            rows = functions_over(path.read_text(encoding="utf-8"))
            found.setdefault(folder, []).extend(f"{path.name}:{name} is {n}" for name, n in rows.items())
    assert {folder: rows for folder, rows in found.items() if len(rows) > ALLOWED.get(folder, 0)} == {}


def test_folders_with_complex_functions_exist() -> None:
    assert [folder for folder in ALLOWED if not (ROOT / folder).is_dir()] == []


def test_what_counts() -> None:
    text = """
def f(x):
    assert x
    for a in x:
        while a and x or not a:
            a = [b if b else c for b in a for c in b]
    try:
        def g():
            match x:
                case 1: pass
    except E:
        if x: pass
    return x
"""
    (function,) = ast.parse(text).body
    parts = Counter(assertion=1, loops=2, operators=2, comprehensions=2, choice=1, case=1, handler=1, decision=1)
    assert complexity(function) == 1 + parts.total()
    assert functions_over(text, 11) == {"2 f": 12} and functions_over(text, 12) == {}
    assert functions_over(text, 1) == {"2 f": 12, "8 g": 2}
