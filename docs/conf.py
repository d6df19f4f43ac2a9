"""Sphinx: the pages of this folder, and the public names' docstrings, as a site. `make docs` builds it."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent

project = "kernelgraph"
author = "The kernelgraph authors"
version = release = next(
    line.split('"')[1]
    for line in (ROOT / "src" / "kernelgraph" / "__init__.py").read_text(encoding="utf-8").splitlines()
    if line.startswith("__version__")
)
html_title = f"kernelgraph {version}"
assert tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["name"] == project

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton"]
html_theme = "furo"
html_extra_path = ["_reports"] if (Path(__file__).parent / "_reports").is_dir() else []  # which `make docs` writes
exclude_patterns = ["_build", "_reports", "curves"]
default_role = "code"  # docstrings quote names as Markdown does
autodoc_typehints = "description"
autodoc_member_order = "bysource"
myst_heading_anchors = 4
# Links to files of the repository that are no pages, and JSON-like output in blocks of Python.
suppress_warnings = ["myst.xref_missing", "misc.highlighting_failure"]
