"""The page of the API has every public name, once, and says of each what its parameters are and when it raises."""

from __future__ import annotations

import builtins
import importlib.util
import inspect
import re
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


@pytest.mark.parametrize("name", NAMES)
def test_each_parameter_is_described(name: str) -> None:
    value = value_of(name)
    if isinstance(value, type) and issubclass(value, BaseException):
        assert inspect.getdoc(value)
        return
    assert inspect.getdoc(value)
    assert [known for known, words in docstrings().described_parameters(value).items() if not words] == []


@pytest.mark.parametrize("name", [name for name in NAMES if not isinstance(value_of(name), type)])
def test_each_function_says_what_it_gives_and_raises(name: str) -> None:
    value, functions = value_of(name), {known: getattr(kg, known) for known in dir(kg)}
    assert docstrings().described_result(name, value)
    errors = docstrings().described_errors(name, value, functions)
    assert errors is not None, "neither the docstring nor the table says what it raises"
    assert all(issubclass(getattr(kg, error, None) or getattr(builtins, error), Exception) for error in errors)


@pytest.mark.parametrize("name", NAMES)
def test_each_has_an_example(name: str) -> None:
    """Of an error, on the page that the site leads to from its name."""
    text = inspect.getdoc(value_of(name)) or ""
    page = docstrings().page_of_error(name)
    assert ">>> " in text or (page and "```python" in (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8"))


def test_prose_becomes_fields() -> None:
    text = (
        "Copies it. x: what is copied. device: where to; deep, flat: how. Raises OptionError for a wrong one.\n\n>>> 1"
    )
    lines = docstrings().with_fields(text.splitlines(), ["x", "device", "deep", "flat"])
    assert [line for line in lines if line] == [
        "Copies it.",
        ">>> 1",
        ":param x: what is copied",
        ":param device: where to",
        ":param deep: how",
        ":param flat: how",
        ":raises OptionError: for a wrong one",
    ]


@pytest.mark.parametrize("name", ["kernel_graph", "grad", "host", "place", "shard", "prefetch", "spec"])
def test_errors_are_fields(name: str) -> None:
    text = inspect.getdoc(value_of(name)) or ""
    errors = docstrings().split_docstring(text, [])[2]
    assert errors and all(issubclass(getattr(kg, error, ValueError), Exception) for error in errors)
