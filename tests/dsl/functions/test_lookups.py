"""Arrays of integers as indices are loads inside kernels: few tasks, one read of the indices, checked ranges."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kernelgraph as kg
from kernelgraph.compiler.pipeline import compile_graph_to_program
from kernelgraph.runtime.core.settings import override
from tests.compiler.access_audit import run_program
from tests.counts import examples
from tests.dsl.agreement import ANY, agrees, arrays

patient = settings(deadline=None, max_examples=examples(60))
X = np.arange(24.0, dtype=np.float32).reshape(6, 4)
PLACES = np.array([5, -6, 2])


def taken(x: Any, i: Any) -> Any:
    return np.exp((x * 2)[i]) + 1


def tasks(function: Any, *args: Any, target: str = "cuda") -> list[str]:
    return [
        t.name for t in compile_graph_to_program(kg.kernel_graph(device="fake")(function).graph(*args), target).tasks
    ]


def test_one_kernel() -> None:
    assert tasks(lambda x, i: np.exp(x[i]) + 1, X, PLACES) == ["gather_exp_add"]
    assert tasks(lambda x, i: x[i].sum(1), X, PLACES) == ["gather_sum"]
    assert tasks(lambda x, i: np.take(x, i, axis=1, mode="clip") * 2, X, PLACES) == ["clip_gather_multiply"]
    assert tasks(lambda x, i: x[i], X, PLACES, target="cpu") == ["clear_report", "gather", "check_indices"]
    assert tasks(taken, X, PLACES) == ["multiply", "gather_exp_add"]  # what is looked up is in memory before


def test_the_indices_are_read_once() -> None:
    program = compile_graph_to_program(
        kg.kernel_graph(device="fake")(lambda x, i: np.sqrt(x[i] + i)).graph(X.ravel(), PLACES), "cuda"
    )
    touched: list[Any] = []
    (found,) = run_program(program, [X.ravel(), np.abs(PLACES)], touched=touched)
    np.testing.assert_array_equal(found.view(np.float64), np.sqrt(X.ravel()[np.abs(PLACES)] + np.abs(PLACES)))
    (record,) = touched
    assert sum(buffer == 1 for buffer, _ in record.reads) == PLACES.nbytes


@given(arrays(ANY, (1, 3), 1), st.data())
@patient
def test_modes(x: Any, data: Any) -> None:
    index = data.draw(arrays(("i8", "i4", "u1"), (0, 2)))
    axis = data.draw(st.sampled_from([None, *range(-x.ndim, x.ndim)]))
    for mode in ("wrap", "clip"):
        agrees(lambda x, i, m=mode: np.take(x, i, axis, mode=m) + 1, x, index)


@pytest.mark.parametrize("bad", [6, -7, 2**62, -(2**62)])
@pytest.mark.parametrize(
    "function",
    [
        lambda x, i: x[i],
        lambda x, i: x[i, 0] + x[0, 1],
        lambda x, i: np.take(x, i, axis=0),
        lambda x, i: np.exp(x[i]).sum(),
        lambda x, i: np.take_along_axis(x, i[:, None], 0),
    ],
)
def test_out_of_range(function: Any, bad: int) -> None:
    index = PLACES.copy()
    index[1] = bad
    with pytest.raises(IndexError, match=f"index {bad} is out of bounds for axis 0 with size 6") as caught:
        np.asarray(kg.kernel_graph(device="cpu")(function)(X, index))
    assert str(caught.value).startswith("test_lookups.py:")


def test_of_several_axes_each_is_named() -> None:
    function = kg.kernel_graph(device="cpu")(lambda x, i, j: x[i, j])
    with pytest.raises(IndexError, match="index 4 is out of bounds for axis 1 with size 4"):
        np.asarray(function(X, PLACES, PLACES - 1))
    np.testing.assert_array_equal(np.asarray(function(X, PLACES, PLACES % 4)), X[PLACES, PLACES % 4])


def test_a_gpu_checks_where_plans_are_verified() -> None:
    def function(x: Any, i: Any) -> Any:
        return x[i]

    graph = kg.kernel_graph(device="fake")(function).graph(X, PLACES)
    with override(verify=True):
        program = compile_graph_to_program(graph, "cuda")
    assert [t.name for t in program.tasks] == ["clear_report", "gather", "check_indices"]
    with pytest.raises(IndexError, match="index 9 is out of bounds"):
        run_program(program, [X, PLACES + 4])
    (found,) = run_program(
        compile_graph_to_program(graph, "cuda"), [X, np.array([99, 1, -1])]
    )  # no kernel leaves its arrays
    np.testing.assert_array_equal(found.view(np.float32).reshape(3, 4), X[[0, 1, -1]])


def test_mistakes() -> None:
    def fails(function: Any, *args: Any) -> Any:
        with pytest.raises((IndexError, TypeError, ValueError)) as caught:
            kg.kernel_graph(device="cpu")(function)(*args)
        return str(caught.value)

    assert "no index is in range along axis 0" in fails(lambda x, i: x[i], X[:0], PLACES)
    assert "not float32" in fails(lambda x, i: np.take(x, i), X, X)
    assert "none of 'raise'" in fails(lambda x, i: np.take(x, i, mode="nearest"), X, PLACES)
    assert "axis 2 is out of bounds" in fails(lambda x, i: np.take(x, i, axis=2), X, PLACES)
    assert np.asarray(kg.kernel_graph(device="cpu")(lambda x, i: x[i])(X[:0], PLACES[:0])).shape == (0, 4)


@given(arrays(("f4", "f8", "i4", "u8", "i8"), (1, 1), 1), arrays(("f4", "f8", "i4", "i8"), (0, 2)))
@patient
def test_searching(table: Any, values: Any) -> None:
    for side in ("left", "right"):
        agrees(lambda t, v, s=side: np.searchsorted(t, v, s), np.sort(table), values)


@given(arrays(("f4", "f8", "i4", "u1"), (1, 2), 1), st.sampled_from([(-2.0, 2.0), (0, 7), (1, 1), (-0.1, 0.3)]))
@patient
def test_histograms(x: Any, limits: Any) -> None:
    for bins in (1, 7):
        agrees(lambda x, n=bins: np.histogram(x, n, limits), x)
        agrees(lambda x, n=bins: np.histogram(x, n, limits, weights=(x * 3 + 1).astype("f4")), x)
        agrees(lambda x, n=bins: np.histogram(x, n, limits, True, np.full(x.shape, 3)), x)


@given(arrays(("f4", "i8", "u1"), (1, 3), 1), st.data())
@patient
def test_the_greatest(x: Any, data: Any) -> None:
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    k, largest = data.draw(st.integers(0, x.shape[axis])), data.draw(st.booleans())
    values, places = (np.asarray(r) for r in kg.kernel_graph(device="cpu")(kg.topk)(x, k, axis, largest))
    wanted = np.sort(x, axis)
    wanted = np.flip(wanted, axis) if largest else wanted
    np.testing.assert_array_equal(values, np.take(wanted, np.arange(k), axis))
    np.testing.assert_array_equal(values, np.take_along_axis(x, places, axis))
    for got, want in zip(kg.topk(kg.asarray(x, device="cpu"), k, axis, largest), (values, places), strict=True):
        np.testing.assert_array_equal(np.asarray(got), want)


def test_bad_requests_for_the_greatest() -> None:
    for k in (-1, 7, 2**70):
        with pytest.raises(ValueError, match=f"k={k} is not between 0 and 6, the length of axis 0"):
            kg.kernel_graph(device="cpu")(lambda x, k=k: kg.topk(x, k, 0))(X)
    with pytest.raises(np.exceptions.AxisError):
        kg.kernel_graph(device="cpu")(lambda x: kg.topk(x, 1, 2))(X)


@pytest.mark.parametrize("out", [np.full(1, -1.0), np.full((1, 3), -1.0)])
def test_an_out_that_does_not_fit_is_refused_before_the_indices_are_looked_at(out: Any) -> None:
    def f(x: Any, y: Any) -> Any:
        y[...] = 0.5
        return np.take(x, [0], 0, out=y)

    with pytest.raises((ValueError, TypeError, IndexError)) as error:
        f(np.ones((0, 3), "c8"), out.copy())
    with pytest.raises(error.type):
        kg.kernel_graph(f, device="cpu")(np.ones((0, 3), "c8"), out.copy())
