"""Every refusal that the language documents: its type, the user's line, and what it says to write instead."""

from __future__ import annotations

import inspect
from collections import deque
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg

from .test_errors import refused

X = np.ones((3, 4), np.float32)
TABLE = np.ones(4)
NAMES = {"a": 1}
COUNT = 0


def decides_if(x: Any) -> Any:
    y = x * 2
    if y.sum() > 0:  # here
        return y
    return x


def decides_while(x: Any) -> Any:
    while x.max() > 1:  # here
        x = x / 2
    return x


def as_bool(x: Any) -> Any:
    return bool(x[0, 0])  # here


def as_int(x: Any) -> Any:
    return int(x[0, 0])  # here


def as_float(x: Any) -> Any:
    return float(x[0, 0])  # here


def as_item(x: Any) -> Any:
    return x.sum().item()  # here


def as_index(x: Any) -> Any:
    return [0 for _ in range(x.argmax())]  # here


def as_numpy(x: Any) -> Any:
    return memoryview(x.__array__())  # here


def chosen(x: Any) -> Any:
    y = x + 1
    return y[y > 1] * 2  # here


def found(x: Any) -> Any:
    return np.nonzero(x)  # here


def unique(x: Any) -> Any:
    return np.unique(x)  # here


def unsupported(x: Any) -> Any:
    return np.poly(x[0])  # here


def unsupported_argument(x: Any) -> Any:
    return x.sum(order="F")  # here


def assigns_global(x: Any) -> Any:
    global COUNT
    COUNT = 1  # here
    return x


def assigns_array(x: Any) -> Any:
    TABLE[0] = 1  # here
    return x + TABLE


def assigns_dict(x: Any) -> Any:
    NAMES["a"] = 2  # here
    return x


def draws(x: Any) -> Any:
    return x + np.random.rand(4)  # here


def through_broadcast(x: Any) -> Any:
    wide = np.broadcast_to(x[0], (3, 4))
    wide[0] = 1  # here
    return wide


# the function, the error, and words of what it says to write instead
REFUSALS: list[tuple[Any, type[Exception], tuple[str, ...]]] = [
    (decides_if, kg.TraceError, ("cannot decide an if", "np.where(condition, a, b)")),
    (decides_while, kg.TraceError, ("while", "np.where(condition, a, b)")),
    (as_bool, kg.TraceError, ("np.where(condition, a, b)",)),
    (as_int, kg.TraceError, ("no Python int", "x.astype(np.int64)")),
    (as_float, kg.TraceError, ("no Python float", "x.astype(np.float64)")),
    (as_item, kg.TraceError, (".item()", "return it and call .item() on the result")),
    (as_index, kg.TraceError, ("loop count", "Python int argument")),
    (as_numpy, kg.TraceError, ("cannot become a NumPy array", "np.stack")),
    (chosen, kg.UnsupportedError, ("depends on data", "np.where(mask, x, 0)", "untraceable='split'")),
    (found, kg.UnsupportedError, ("depends on data", "np.where(mask, a, b)")),
    (unique, kg.UnsupportedError, ("depends on data", "outside of the traced function")),
    (unsupported, kg.UnsupportedError, ("np.poly cannot be traced", "outside of the traced function")),
    (unsupported_argument, kg.UnsupportedError, ("order=", "supported are", "keepdims")),
    (assigns_global, kg.TraceError, ("global 'COUNT'", "return the value instead")),
    (assigns_array, kg.TraceError, ("no argument", "pass it as an argument")),
    (assigns_dict, kg.TraceError, ("the dict NAMES", "return the value instead")),
    (draws, kg.UnsupportedError, ("np.random.rand", "pass the random numbers as an argument")),
    (through_broadcast, kg.ReadOnlyError, ("read-only", "x.copy()")),
]


def here(function: Any) -> int:
    """The number of the line that the function marks."""
    lines, first = inspect.getsourcelines(function)
    return first + next(i for i, line in enumerate(lines) if line.rstrip().endswith("# here"))


@pytest.mark.parametrize("function, kind, words", REFUSALS, ids=lambda p: getattr(p, "__name__", ""))
def test_refusals(function: Any, kind: type[Exception], words: tuple[str, ...]) -> None:
    decorated = kg.kernel_graph(function, device="fake")
    for _ in range(2):  # a refusal leaves nothing behind
        refused(lambda: decorated(X.copy()), kind, *words, line=here(function))
    refused(lambda: decorated.graph(kg.spec((3, 4), "f4")), kind, *words, line=here(function))


def test_a_value_that_escaped() -> None:
    kept: Any = deque()

    def keeps(x: Any) -> Any:
        kept.append(x + 1)
        return x

    def uses(x: Any) -> Any:
        return x + kept[0]  # here

    kg.kernel_graph(keeps, device="fake").graph(X)
    refused(lambda: kept[0] * 2, kg.EscapedValueError, "return it from the traced function")
    refused(lambda: kg.kernel_graph(uses, device="fake")(X), kg.EscapedValueError, "return it from", line=here(uses))
