"""Words that say nothing of a thing are no names of members, parameters and functions; locals may be short.

A file that has some still is listed with them, and its row goes when they do: no row may be added.
`python -m tests.test_names` prints the rows as they are.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
BANNED = frozenset(
    ("asked", "found", "holds", "it", "its", "lent", "looks", "more", "over", "seen", "them", "they", "told", "wanted")
)

# file -> the banned names that it has today
ALLOWED: dict[str, str] = {
    "dsl/core/object_state.py": "seen",
    "dsl/core/pytree.py": "_told",
    "dsl/environment/environment.py": "found",
    "dsl/environment/frozen_containers.py": "found",
    "dsl/environment/guards.py": "holds",
    "dsl/environment/proxies.py": "found",
    "dsl/functions/elementwise.py": "more",
    "dsl/functions/masked_values.py": "more",
    "dsl/functions/views.py": "asked",
    "dsl/interop/host_import.py": "found",
    "dsl/jit/launcher.py": "over",
    "dsl/trace/aliasing.py": "_seen",
    "dsl/trace/memory_layout.py": "found",
    "dsl/trace/tracer.py": "_seen",
}


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
    """Neither new ones, nor rows of what is mended: `python -m tests.test_names` prints what there is."""
    assert banned() == ALLOWED


def test_what_counts_as_a_name() -> None:
    text = "class A:\n it = 1\n more: int\n def over(self, seen, *its, told=1):\n  lambda asked: 1\n  self.lent = seen"
    assert BANNED & set(names(ast.parse(text))) == {"it", "more", "over", "seen", "its", "told", "asked", "lent"}


if __name__ == "__main__":
    for file, bad in banned().items():
        print(f'    "{file}": "{bad}",')
