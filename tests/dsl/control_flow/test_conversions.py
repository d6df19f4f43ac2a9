"""Numbers of NumPy that Python converts, and errors of NumPy that a function catches, beside NumPy's own run."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg

pytestmark = pytest.mark.filterwarnings("ignore")  # NumPy's, of the imaginary parts that it drops

DTYPES = ("?", "i1", "u2", "i8", "f2", "f4", "f8", "c8", "c16")
FUNCTIONS = ("float", "int", "bool", "complex", "abs", "math.trunc", "math.floor", "math.ceil", "math.sqrt", "math.cos")
OPERANDS = {
    "element": "x[1]",
    "array without axes": "np.asarray(x[1])",
    "array of one": "x[1:2]",
    "sum": "x.sum()",
    "Python's": "complex(x[1])",
}
FAILING = (
    "x[7]",
    "x[1, 1]",
    "x @ np.ones(5)",
    "x.reshape(2, 2)",
    "x.sum(axis=3)",
    "x + np.ones(2)",
    "np.stack([x, x[1:]])",
)
LOOKS = ("type(e).__name__", "str(e)", "repr(e)", "len(e.args)", "isinstance(e, IndexError)", "x.sum() + len(str(e))")


def outcome(function: Callable[..., Any], *args: Any) -> Any:
    try:
        found = function(*args)
    except Exception as error:
        return next(kind.__name__ for kind in type(error).__mro__ if kind.__module__ in ("builtins", "numpy"))
    if isinstance(found, str):
        return found
    return np.asarray(found).dtype.str, np.asarray(found).tolist()


def source(tmp_path: Any, text: str) -> Callable[..., Any]:
    """A function in a file, so that its source is found."""
    path = tmp_path / "functions.py"
    path.write_text(f"import math\nimport numpy as np\n\n\ndef f(x):\n    {text}\n")
    names: dict[str, Any] = {"__file__": str(path)}
    exec(compile(path.read_text(), str(path), "exec"), names)
    return names["f"]  # type: ignore[no-any-return]


@pytest.mark.parametrize(("function", "operand"), [*product(FUNCTIONS, OPERANDS)])
def test_conversions_are_those_of_python(tmp_path: Any, function: str, operand: str) -> None:
    f = source(tmp_path, f"return {function}({OPERANDS[operand]})")
    g = kg.kernel_graph(f, device="cpu", untraceable="numpy")
    for dtype in DTYPES:
        x = np.array([0, 1, 1]).astype(dtype)
        assert outcome(g, x) == outcome(f, x), dtype


@pytest.mark.parametrize(("failing", "look"), [*product(FAILING, LOOKS)])
def test_a_caught_error_is_that_of_numpy(tmp_path: Any, failing: str, look: str) -> None:
    f = source(tmp_path, f"try:\n        return {failing}\n    except Exception as e:\n        return {look}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert outcome(kg.kernel_graph(f, device="cpu"), np.ones(3)) == outcome(f, np.ones(3))


def test_an_error_that_is_caught_without_a_name_is_compiled(tmp_path: Any) -> None:
    f = source(tmp_path, "try:\n        return x[7]\n    except IndexError:\n        return x.sum()")
    assert kg.kernel_graph(f, device="cpu", untraceable="refuse")(np.ones(3)) == 3
