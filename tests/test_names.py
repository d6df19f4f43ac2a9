"""Words that say nothing of a thing are no names of members, parameters and functions; locals may be short."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
BANNED = frozenset(
    ("asked", "found", "holds", "it", "its", "lent", "looks", "more", "over", "seen", "them", "they", "told", "wanted")
)


def names(node: ast.AST, in_class: bool = False) -> Iterator[str]:
    """The functions, classes, parameters and members that the children of a node define."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield child.name
        if isinstance(child, ast.arg):
            yield child.arg
        if isinstance(child, ast.Attribute) and isinstance(child.ctx, ast.Store):
            yield child.attr
        if in_class and isinstance(child, ast.Assign | ast.AnnAssign):
            targets = child.targets if isinstance(child, ast.Assign) else [child.target]
            yield from (target.id for target in targets if isinstance(target, ast.Name))
        yield from names(child, isinstance(child, ast.ClassDef))


def banned() -> dict[str, str]:
    found = {}
    for layer in ("compiler", "dsl", "runtime"):
        for path in sorted((ROOT / layer).rglob("*.py")):
            used = set(names(ast.parse(path.read_text(encoding="utf-8"))))
            if bad := sorted(name for name in used if name.strip("_") in BANNED):
                found[path.relative_to(ROOT).as_posix()] = " ".join(bad)
    return found


def test_names_are_nouns_or_verbs_with_an_object() -> None:
    assert banned() == {}


def constants_bound_twice(text: str) -> list[str]:
    """Constants of a module that a later line binds anew: what reads the first reads the second."""
    bound = [
        target.id
        for line in ast.parse(text).body
        if isinstance(line, ast.Assign | ast.AnnAssign)
        for whole in (line.targets if isinstance(line, ast.Assign) else [line.target])
        for target in ast.walk(whole)
        if isinstance(target, ast.Name) and isinstance(target.ctx, ast.Store)
    ]
    return sorted({name for name in bound if bound.count(name) > 1})


def test_no_constant_is_bound_twice() -> None:
    paths = [path for layer in ("compiler", "dsl", "runtime") for path in sorted((ROOT / layer).rglob("*.py"))]
    twice = {path.name: constants_bound_twice(path.read_text(encoding="utf-8")) for path in paths}
    assert {name: constants for name, constants in twice.items() if constants} == {}
    assert constants_bound_twice("A = 1\ndef f(): A = 2\nA, B = 3, 4") == ["A"]


def test_what_counts_as_a_name() -> None:
    text = "class A:\n it = 1\n more: int\n def over(self, seen, *its, told=1):\n  lambda asked: 1\n  self.lent = seen"
    assert BANNED & set(names(ast.parse(text))) == {"it", "more", "over", "seen", "its", "told", "asked", "lent"}
