"""What editors show: the options with their defaults, and a sentence on each function."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest

import kernelgraph as kg
from kernelgraph.dsl.jit.options import OPTION_DEFAULTS, KernelGraphKeywords, checked_kernel_graph_options

STUB = ast.parse((Path(__file__).parents[2] / "src" / "kernelgraph" / "__init__.pyi").read_text(encoding="utf-8"))


def test_the_signature_has_every_option_and_its_default() -> None:
    parameters = inspect.signature(kg.kernel_graph).parameters
    assert list(parameters) == ["function", *KernelGraphKeywords.__annotations__]
    assert {name: p.default for name, p in parameters.items() if name != "function"} == OPTION_DEFAULTS


@pytest.mark.parametrize("name", sorted(set(OPTION_DEFAULTS) - {"mesh", "in_axes", "out_axes"}))
def test_a_default_that_is_given_is_the_default(name: str) -> None:
    given = {name: OPTION_DEFAULTS[name]}
    assert checked_kernel_graph_options(**given) == checked_kernel_graph_options()  # type: ignore[arg-type]


def test_functions_have_a_sentence() -> None:
    functions = [node for node in ast.walk(STUB) if isinstance(node, ast.FunctionDef) and node.name[0] != "_"]
    without = [node.name for node in functions if not ast.get_docstring(node)]
    assert len(functions) > 300 and len(without) <= len(functions) // 50, without
    assert all(len((ast.get_docstring(node) or "").splitlines()) <= 1 for node in functions)
