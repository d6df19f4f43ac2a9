"""The page of the API has every public name, once, and says of each what its parameters are and when it raises."""

from __future__ import annotations

import builtins
import importlib.util
import inspect
import re
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import kernelgraph as kg

ROOT = Path(__file__).parent.parent
LISTED = re.findall(r"^\.\. auto\w+:: ([\w.]+)$", (ROOT / "docs" / "api.md").read_text(encoding="utf-8"), re.MULTILINE)
NESTED = {f"{space}.{name}" for space in ("nn", "random", "debug") for name in dir(getattr(kg, space))}
LOOPS = {"cond", "fori_loop", "scan", "while_loop"}
IN_WORDS = {"DeviceName", "bfloat16", "distributed", "optimizer", "settings", "kernelgraph.dsl.devices.distributed"}
OPTIMIZERS = {f"optimizer.{name}" for name in ("AdaGrad", "Adam", "Optimizer", "SGD", "create")}
OF_RESULTS = {"dsl.array.memory.MemoryAccount"}
# classes whose objects functions of ours give
GIVEN = {
    "Array",
    "Comparison",
    "Elementwise",
    "Event",
    "Key",
    "KernelGraph",
    "MemoryAccount",
    "Profile",
    "Report",
    "Sharded",
}
GIVING_NOTHING = {"debug.print", "save_sharded", "synchronize", "use_allocator", "waitall"}
RAISING_NOTHING = {"current_stream", "debug.print", "stop_gradient", "waitall"}


def docstrings() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docstrings", ROOT / "docs" / "docstrings.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def value_of(name: str) -> Any:
    value: Any = kg
    for part in name.removeprefix("kernelgraph.").split("."):
        value = getattr(value, part)
    return value


NAMES = sorted({name.removeprefix("kernelgraph.") for name in LISTED} - IN_WORDS - {"dsl.devices.distributed"})


def test_every_public_name_is_there_once() -> None:
    nested = {name for name in NESTED if not name.rpartition(".")[2].startswith("_")} - {"nn.tanh"}  # NumPy's
    assert {*NAMES} == ({*kg.__all__} - IN_WORDS) | LOOPS | OPTIMIZERS | OF_RESULTS | nested
    assert len(LISTED) == len({*LISTED})
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in text for name in IN_WORDS if "." not in name)


def sections(name: str) -> dict[str, dict[str, str]]:
    return docstrings().sections(inspect.getdoc(value_of(name)) or "")  # type: ignore[no-any-return]


def is_error(name: str) -> bool:
    value = value_of(name)
    return isinstance(value, type) and issubclass(value, BaseException)


@pytest.mark.parametrize("name", [name for name in NAMES if not is_error(name)])
def test_each_parameter_is_described(name: str) -> None:
    """In the docstring itself, in the order of the signature; nobody makes objects of some classes."""
    described = sections(name).get("Parameters", {})
    names = [] if name.rpartition(".")[2] in GIVEN else docstrings().parameter_names(value_of(name))
    assert list(described) == names and all(described.values())


@pytest.mark.parametrize("name", [name for name in NAMES if not isinstance(value_of(name), type)])
def test_each_function_says_what_it_gives_and_raises(name: str) -> None:
    described = sections(name)
    assert ("Returns" in described) == (name not in GIVING_NOTHING)
    assert ("Raises" in described) == (name not in RAISING_NOTHING)
    for error in described.get("Raises", {}):
        assert issubclass(getattr(kg, error, None) or getattr(builtins, error), Exception)


@pytest.mark.parametrize("name", NAMES)
def test_the_first_sentence_is_short(name: str) -> None:
    first = re.split(r"(?<=[^.][.])\s", " ".join((inspect.getdoc(value_of(name)) or "").partition("\n\n")[0].split()))[
        0
    ]
    assert 0 < len(re.sub(r"`[^`]*`", "code", first).split()) <= 15, first


def test_errors_have_a_docstring() -> None:
    assert [name for name in NAMES if is_error(name) and not inspect.getdoc(value_of(name))] == []


@pytest.mark.parametrize("name", [name for name in NAMES if not is_error(name)])
def test_docstrings_are_in_numpy_s_style(name: str) -> None:
    """A first paragraph, then sections in NumPy's order, each with its line below the title."""
    lines = (inspect.getdoc(value_of(name)) or "").splitlines()
    titles = [(title, below) for title, below in pairwise(lines) if set(below) == {"-"}]
    assert lines[0] and all(len(title) == len(below) for title, below in titles)
    order = ["Parameters", "Attributes", "Returns", "Raises", "Examples"]
    assert [title for title, _ in titles] == [title for title in order if title in dict(titles)]
    prose = "\n".join(lines[: lines.index(titles[0][0])])
    assert not re.search(r"\b(Raises|Returns) [A-Z]\w+Error", prose)


@pytest.mark.parametrize("name", NAMES)
def test_each_has_an_example(name: str) -> None:
    """Of an error, on the page that the site leads to from its name."""
    text = inspect.getdoc(value_of(name)) or ""
    page = docstrings().page_of_error(name)
    assert ">>> " in text or (page and "```python" in (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8"))


def test_how_sections_are_read() -> None:
    text = """Copies it.

Parameters
----------
x : array_like
    What is copied.
*rest
    More,
    of any kind.
device, other

Returns
-------
Array

Examples
--------
>>> 1
"""
    found = docstrings().sections(text)
    assert found["Parameters"] == {"x": "What is copied.", "rest": "More, of any kind.", "device, other": ""}
    assert found["Returns"] == {"Array": ""} and "Raises" not in found
    lines = docstrings().with_escaped_stars(["*args", "2 * x, `a * b`", "Examples", ">>> 2 * x"])
    assert lines == ["*args", "2 \\* x, `a * b`", "Examples", ">>> 2 * x"]
