"""Sphinx: the pages of this folder, and the public names' docstrings, as a site. `make docs` builds it."""

import re
import sys
import tomllib
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from docstrings import page_of_error, with_escaped_stars

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
REPOSITORY = PROJECT["urls"]["Repository"]

project = "kernelgraph"
author = "The kernelgraph authors"
version = release = next(
    line.split('"')[1]
    for line in (ROOT / "src" / "kernelgraph" / "__init__.py").read_text(encoding="utf-8").splitlines()
    if line.startswith("__version__")
)
html_title = f"kernelgraph {version}"
assert PROJECT["name"] == project

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
napoleon_google_docstring = False
html_theme = "furo"
html_theme_options = {"source_repository": REPOSITORY, "source_branch": "main", "source_directory": "docs/"}
html_extra_path = ["_reports"] if (Path(__file__).parent / "_reports").is_dir() else []  # which `make docs` writes
exclude_patterns = ["_build", "_reports", "curves"]
default_role = "code"  # docstrings quote names as Markdown does
autodoc_typehints = "description"
autodoc_member_order = "bysource"
myst_heading_anchors = 4
suppress_warnings = ["misc.highlighting_failure"]  # JSON-like output in blocks of Python


def link_to_repository(app: Any, page: str, source: list[str]) -> None:
    """Links to files of the repository that are no pages lead to where it is. Others that lead nowhere are errors."""
    folder = (ROOT / "docs" / page).parent

    def with_address(match: re.Match[str]) -> str:
        target, mark, place = match[1].partition("#")
        path = (folder / target).resolve()
        if (ROOT / "docs") in path.parents or not path.exists():
            return match[0]
        return f"]({REPOSITORY}/blob/main/{path.relative_to(ROOT).as_posix()}{mark}{place})"

    source[0] = re.sub(r"\]\((\.\.?/[^)\s]+)\)", with_address, source[0])


def prepare_docstring(app: Any, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Before napoleon makes tables of its sections."""
    lines[:] = with_escaped_stars(lines)
    if page := page_of_error(name.removeprefix("kernelgraph.")):
        lines += ["", f"When it is raised, with an example: :doc:`{page}`.", ""]


# What the theme leaves out: the level of the sidebar's captions, and that what scrolls can be reached by keyboard.
REACHABLE = {
    '<p class="caption" role="heading">': '<p class="caption" role="heading" aria-level="2">',
    "<pre>": '<pre tabindex="0">',
    '<div class="table-wrapper docutils container">': '<div class="table-wrapper docutils container" tabindex="0">',
    '<div class="sidebar-scroll">': '<div class="sidebar-scroll" tabindex="0">',
    '<div class="toc-scroll">': '<div class="toc-scroll" tabindex="0">',
}


def make_reachable(app: Any, error: Exception | None) -> None:
    for path in Path(app.outdir).rglob("*.html") if error is None else ():
        text = path.read_text(encoding="utf-8")
        if "sphinx" in text:  # no report
            for old, new in REACHABLE.items():
                text = text.replace(old, new)
            path.write_text(text, encoding="utf-8")


def setup(app: Any) -> None:
    app.connect("build-finished", make_reachable)
    app.connect("source-read", link_to_repository)
    app.connect("autodoc-process-docstring", prepare_docstring, priority=400)
