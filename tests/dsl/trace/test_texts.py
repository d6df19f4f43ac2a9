"""The text of a traced value: nothing that a traced function may go on with, but what its user sees in print."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from tests.dsl.tracing import assert_same

X = np.array([1.0, 2.0])
TEXTS: dict[str, Callable[[Any], str]] = {
    "str": str,
    "repr": repr,
    "format": lambda v: f"{v}",
    "format repr": lambda v: f"{v!r}",
    "percent": lambda v: "%s" % v,  # noqa: UP031
    "method": "{}".format,
    "in a list": lambda v: str([v]),
    "in a helper": lambda v: next(str(w) for w in (v,)),
}


@pytest.mark.parametrize("name", TEXTS)
def test_the_text_of_a_value_that_is_not_known_is_refused(name: str) -> None:
    text = TEXTS[name]

    def function(x: Any) -> Any:
        return x * len(text(x))

    def of_result(x: Any) -> Any:
        return x * len(text(x.sum()))

    for f in (function, of_result, lambda x: x * len(text(x[x > 1.5]))):
        with pytest.raises(
            (kg.TraceError, kg.UnsupportedError), match=r"test_texts.py:\d+: .*(kg\.debug\.print|np\.where)"
        ):
            kg.kernel_graph(f, device="cpu", untraceable="refuse")(X)
        assert_same(kg.kernel_graph(f, device="cpu", untraceable="split")(X), f(X))


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("value", [np.array(2.0), 2.0, 3, np.float32(2.5)], ids=repr)
def test_the_text_of_a_number_of_the_call_is_that_of_its_value(name: str, value: Any) -> None:
    text = TEXTS[name]

    def function(x: Any, v: Any) -> Any:
        return x * len(text(v))

    f = kg.kernel_graph(function, device="cpu")
    for v in (value, value * 50, value):
        assert_same(f(X, v), function(X, v))


def test_print_shows_values_at_each_call(capsys: pytest.CaptureFixture[str]) -> None:
    def function(x: Any, n: Any) -> Any:
        print(x, [x.sum()], n, {"n": (n,)}, sep="; ")
        x[0] = 7
        print(x[0], x.dtype, flush=True)
        return x

    f = kg.kernel_graph(function, device="cpu", untraceable="refuse")
    for x, n in ((X, 2), (X + 1, 3), (X, 2.5)):
        function(x.copy(), n)
        expected = capsys.readouterr().out
        f(x.copy(), n)
        assert capsys.readouterr().out == expected
    with kg.override(verify=True):  # the same again
        f(X, 2)


def test_what_arrays_do_not_have_is_refused_as_an_attribute() -> None:
    @kg.kernel_graph(device="cpu")
    def appended(x: Any, values: Any) -> Any:
        values.append(5)
        return x

    with pytest.raises(AttributeError, match=r"test_texts.py:\d+: .*'append'") as caught:
        appended(X, X.copy())
    assert isinstance(caught.value, kg.KernelGraphError)
    assert_same(kg.kernel_graph(lambda x: x * (2 if hasattr(x, "append") else 3), device="cpu")(X), X * 3)
