"""The docstrings of the public names, in NumPy's style: their sections, for the pages of the API and for tests."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

HEAD = re.compile(r"(?:^|\n)(Parameters|Attributes|Returns|Raises|Examples)\n-+\n")


def parameter_names(value: Any) -> list[str]:
    """The parameters of a function, or those with which an object of a class is made; with the keywords of options."""
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return []
    names = [p.name for p in signature.parameters.values()]
    if getattr(value, "__name__", "") == "kernel_graph" and "options" in names:
        from kernelgraph.dsl.jit.options import KernelGraphKeywords

        names += KernelGraphKeywords.__annotations__
    return [name for name in names if not name.startswith("_") and name not in ("self", "cls")]


def page_of_error(name: str) -> str:
    """The page about an error of this name, with an example, or nothing."""
    page = f"errors/{name}"
    return page if (Path(__file__).parent / f"{page}.md").exists() else ""


def sections(text: str) -> dict[str, dict[str, str]]:
    """Of each section its entries: what stands at the left, without type and stars, and the words below that."""
    _, *parts = HEAD.split(text)
    found: dict[str, dict[str, str]] = {}
    for title, body in zip(parts[::2], parts[1::2], strict=True):
        entries = re.split(r"\n(?=\S)", body.strip("\n")) if title != "Examples" else [body]
        heads = [entry.partition("\n") for entry in entries]
        found[title] = {head.partition(" : ")[0].strip("*"): " ".join(words.split()) for head, _, words in heads}
    return found


def escaped_stars(prose: str) -> str:
    """Stars are no emphasis here; between backticks they are the text's own, which letters may follow."""
    parts = prose.split("`")
    outside = [
        re.sub(r"^(?=\w)", r"\\ ", part.replace("*", r"\*")) if i else part.replace("*", r"\*")
        for i, part in enumerate(parts)
    ]
    return "`".join(part if i % 2 else outside[i] for i, part in enumerate(parts))


def with_escaped_stars(lines: list[str]) -> list[str]:
    """The lines of a docstring, whose prose has no emphasis; examples and the names of parameters are left alone."""
    end = lines.index("Examples") if "Examples" in lines else len(lines)
    prose = [line if line.lstrip().startswith("*") else escaped_stars(line) for line in lines[:end]]
    return [*prose, *lines[end:]]
