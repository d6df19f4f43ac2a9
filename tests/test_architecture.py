"""docs/architecture.md shows the folders and the table of imports; files that pages and comments name exist.

`--update-golden` writes the page anew.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.test_imports import ALLOWED, FOLDERS, LAYERS, ROOT

PAGE = ROOT / "docs" / "architecture.md"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md"), *ROOT.glob("benchmarks/*.md")]
TOP = "benchmarks compiler docs dsl examples runtime src tests"
PATH = re.compile(rf"(?<![\w/.-])((?:{'|'.join(TOP.split())})/(?:[\w/-]*\w\.(?:py|md|txt|toml)\b|[\w/]+/(?=[`\s,.])))")


def in_order() -> list[str]:
    """The folders as a reader meets them, from the top layer down: a folder's `__init__` lists what is in it."""
    order: list[str] = []

    def walk(folder: str) -> None:
        order.append(folder)
        below = [other for other in FOLDERS if str(Path(other).parent) == folder]
        listed = docstring(folder).partition("In reading order:")[2]
        for other in sorted(below, key=lambda other: listed.find(f" {Path(other).name}/")):
            walk(other)

    for layer in reversed(LAYERS):
        walk(layer)
    return order


def docstring(folder: str) -> str:
    text = ast.get_docstring(ast.parse((ROOT / folder / "__init__.py").read_text(encoding="utf-8")))
    return " ".join((text or "").split())


def tree() -> str:
    lines = []
    for folder in in_order():
        sentence = docstring(folder).partition("In reading order:")[0].strip()
        lines.append(f"{'  ' * folder.count('/')}- **`{Path(folder).name}/`**: {sentence}")
    return "\n".join(lines)


def table() -> str:
    """The layer's own folders go without its name."""
    lines = ["| folder | in its layer | below |", "|---|---|---|"]
    for folder in in_order():
        layer = folder.split("/")[0] + "/"
        others = ALLOWED[folder].split()
        if not others:
            continue
        own = [other.removeprefix(layer) for other in others if f"{other}/".startswith(layer)]
        below = [other for other in others if not f"{other}/".startswith(layer)]
        lines.append(f"| `{folder}` | {', '.join(own) or '-'} | {', '.join(below) or '-'} |")
    return "\n".join(lines)


def test_the_page_shows_the_folders_and_the_table_of_imports(request: pytest.FixtureRequest) -> None:
    text = new = PAGE.read_text(encoding="utf-8")
    for name, part in {"tree": tree(), "table": table()}.items():
        new = re.sub(rf"(<!-- {name} -->\n).*?(<!-- end -->)", rf"\1\n{part}\n\n\2", new, flags=re.DOTALL)
    if request.config.getoption("--update-golden", default=False):
        PAGE.write_text(new, encoding="utf-8")
    else:
        assert text == new, "run `make golden`"


def test_the_page_names_18_steps_of_reading() -> None:
    text = PAGE.read_text(encoding="utf-8").partition("## Reading order")[2].partition("\n## ")[0]
    assert re.findall(r"^(\d+)\. `", text, re.MULTILINE) == [str(n) for n in range(1, 19)]


def test_paths_that_pages_name_exist() -> None:
    missing = {
        f"{page.relative_to(ROOT)}: {path}"
        for page in PAGES
        for path in PATH.findall(page.read_text(encoding="utf-8"))
        if not (ROOT / path).exists()
    }
    assert not missing


@pytest.mark.parametrize("layer", LAYERS)
def test_paths_that_the_code_names_exist(layer: str) -> None:
    missing = {
        f"{file.relative_to(ROOT)}: {path}"
        for file in (ROOT / layer).rglob("*.py")
        for path in PATH.findall(file.read_text(encoding="utf-8"))
        if not (ROOT / path).exists()
    }
    assert not missing


def test_what_a_path_is() -> None:
    text = "see `dsl/no/file.py`, dsl/gone/ and runtime/old.py. Not x/dsl/a.py, dsl/api or a/compiler/b/"
    assert PATH.findall(text) == ["dsl/no/file.py", "dsl/gone/", "runtime/old.py"]
