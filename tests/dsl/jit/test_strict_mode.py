"""A function that runs in NumPy is seen: in warnings of their own, in its text, in a profile; or it is refused."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.runtime.core.settings import override


def uses_unique(x: Any) -> Any:
    return np.unique(x).sum()


def takes_mixed(x: Any) -> Any:
    return x


FALLBACKS = {  # each runs in NumPy for another reason
    "a shape that values decide": (uses_unique, np.ones(3)),
    "a function without a kernel": (lambda x: np.apply_along_axis(np.sum, 0, x) + np.unique(x), np.ones((2, 2))),
    "the world outside": (lambda x: x + len(os.listdir("/")), np.ones(2)),
    "a kind of argument": (takes_mixed, np.array(["a", "b"], dtype=object)),
}


@pytest.mark.parametrize("function, argument", FALLBACKS.values(), ids=FALLBACKS.keys())
def test_each_fallback_is_told_once_and_can_be_refused(function: Any, argument: Any) -> None:
    f = kg.kernel_graph(function, device="cpu")
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        for _ in range(3):
            f(argument)
    assert [w.category for w in given] == [kg.FallbackWarning]
    assert repr(f).endswith(": 1 version, 1 in NumPy>")
    with override(untraceable="refuse"):
        strict = kg.kernel_graph(function, device="cpu")
        meant = kg.kernel_graph(function, device="cpu", untraceable="numpy")
    with pytest.raises(kg.KernelGraphError, match=r"test_strict_mode\.py:\d+: "):
        strict(argument)
    meant(argument)


def test_a_filter_makes_fallbacks_errors() -> None:
    assert issubclass(kg.FallbackWarning, UserWarning)
    with warnings.catch_warnings():
        warnings.simplefilter("error", kg.FallbackWarning)
        with pytest.raises(kg.FallbackWarning, match="uses_unique runs in NumPy"):
            kg.kernel_graph(uses_unique, device="cpu")(np.ones(3))


def test_many_shapes_are_one_warning() -> None:
    f = kg.kernel_graph(uses_unique, device="cpu")
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        for n in range(1, 6):
            f(np.ones(n))
    assert len(given) == 1


def test_the_text_of_a_function_says_how_often_it_was_compiled() -> None:
    f = kg.kernel_graph(lambda x: x + 1, device="cpu")
    assert repr(f) == "<kernel_graph <lambda>(x)>"
    f(np.ones(3))
    assert repr(f) == "<kernel_graph <lambda>(x): 1 version>"
    f(np.ones(4))
    assert repr(f) == "<kernel_graph <lambda>(x): 2 versions>"


def test_a_profile_says_what_ran_in_numpy() -> None:
    f = kg.kernel_graph(uses_unique, device="cpu", untraceable="numpy")
    with kg.profile() as p:
        f(np.ones(3))
    assert [span.name for span in p.spans if span.kind == "in NumPy"] == ["uses_unique"]
    assert "in NumPy uses_unique" in p.table()


CHILD = "import kernelgraph as kg, numpy as np; kg.kernel_graph(lambda x: np.unique(x), device='cpu')(np.ones(2))"


@pytest.mark.parametrize(
    "variable, value, status, text",
    [
        ("UNTRACEABLE", "refuse", 1, "UnsupportedError: <string>:1: np.unique cannot be traced"),
        ("UNTRACEABLE", "numpy", 0, ""),
        ("UNTRACEABLE", "maybe", 1, "write one of warn, numpy, refuse"),
        ("TREADS", "2", 0, "KERNELGRAPH_TREADS is no setting; did you mean KERNELGRAPH_THREADS?"),
        ("UNTRACABLE", "refuse", 0, "KERNELGRAPH_UNTRACABLE is no setting; did you mean KERNELGRAPH_UNTRACEABLE?"),
        ("COLOUR", "red", 0, "KERNELGRAPH_COLOUR is no setting"),
    ],
)
def test_the_environment_of_a_process(variable: str, value: str, status: int, text: str) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), f"KERNELGRAPH_{variable}": value}
    done = subprocess.run([sys.executable, "-c", CHILD], env=environment, capture_output=True, text=True)
    assert done.returncode == status and text in done.stderr, done.stderr


def test_settings_print_as_a_table() -> None:
    assert "KERNELGRAPH_UNTRACEABLE=warn" in repr(kg.settings)
