"""Lists and tuples that hold traced values mean the arrays that NumPy makes of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import kernelgraph as kg
from tests.counts import examples
from tests.dsl.agreement import ANY, agrees
from tests.dsl.tracing import assert_same, interpreted

A = np.arange(6, dtype=np.float32).reshape(2, 3) + 1
B = np.float64(2) - A.astype(np.float64)
POINT = np.float32(0.75)
PLACE = np.int64(1)

CALLS = [
    # reductions, with options by place and by name
    lambda a, b, t, i: np.sum([a, b], axis=0),
    lambda a, b, t, i: np.sum(a=(a, b), axis=(0, 2), keepdims=True, dtype=np.float64),
    lambda a, b, t, i: np.mean([a, b, a], axis=0),
    lambda a, b, t, i: np.max([a, b]),
    lambda a, b, t, i: np.median([a, b, a], axis=0),
    lambda a, b, t, i: np.linalg.norm([t, b[0, 0]]),
    lambda a, b, t, i: np.average([a, b], axis=0, weights=[t, 2]),
    lambda a, b, t, i: np.argmax([a, b], axis=0),
    # ufuncs and their methods
    lambda a, b, t, i: np.sqrt([t, 1.0]),
    lambda a, b, t, i: np.exp(((t, 1), (2, a[0, 0]))),
    lambda a, b, t, i: np.divmod([t, i], [2, 3]),
    lambda a, b, t, i: np.minimum([t, 1.0, 2], b),
    lambda a, b, t, i: np.add([a, a], b, dtype=np.float64),
    lambda a, b, t, i: np.logical_and.reduce([a > 1, b < 1, a < 5]),
    lambda a, b, t, i: np.add.reduce([a, b], 0, None),
    lambda a, b, t, i: np.maximum.accumulate([a, b]),
    lambda a, b, t, i: np.add.outer([t, i], [t, 1]),
    lambda a, b, t, i: np.add.reduceat([t, t, i], [0, i]),
    # operators, methods, linear algebra
    lambda a, b, t, i: [b[0, 0], t, 1] * a,
    lambda a, b, t, i: [[t, -t], [1, t]] @ a,
    lambda a, b, t, i: np.dot([a[0], b[0]], a[1]),
    lambda a, b, t, i: a.dot([t, 1, i]),
    lambda a, b, t, i: np.linalg.solve([[t, 1], [0, b[0, 2]]], [1, t]),
    lambda a, b, t, i: np.clip(a, [t, 2, 0], [3, 3, b[0, 0] + 4]),
    lambda a, b, t, i: np.where([t > 0, i > 2, True], a, [1, t, i]),
    # shapes, and constant arrays among the parts
    lambda a, b, t, i: np.transpose([a, b], (1, 2, 0)),
    lambda a, b, t, i: np.reshape([a, b], (a.shape[1], -1)),
    lambda a, b, t, i: np.sum([a, [[1, 2, 3], [4, 5, 6]], np.ones((2, 3), np.int8)], axis=0),
    # indices
    lambda a, b, t, i: a[0][[i, 0, i + 1]],
    lambda a, b, t, i: a[[i, 0], [2, i]],
    lambda a, b, t, i: np.take(a, [i, 0], axis=1),
    # sequences of arrays, which are none
    lambda a, b, t, i: np.stack([[a, b], [b, a]], axis=1),
    lambda a, b, t, i: np.concatenate([[t, i], a[0], (t,)]),
    lambda a, b, t, i: np.hstack([[t, i], [t]]),
    lambda a, b, t, i: np.block([[a, b], [b, a]]),
    lambda a, b, t, i: np.meshgrid([t, i], [1, t, 2]),
    lambda a, b, t, i: np.select([[True, t > 0, i > 9], a[0] > 2], [[1, t, 2], a[0]], [i, 1, 1]),
    lambda a, b, t, i: np.choose([0, i, 0], [a[0], b[0]]),
    lambda a, b, t, i: np.einsum("kij,ij->k", [a, b], a),
    lambda a, b, t, i: np.einsum([a, b], [0, 1, 2], [0]),
    lambda a, b, t, i: np.lexsort(([t, i, 0], [i, t, t])),
    lambda a, b, t, i: np.ix_([i, 0], [0, i, 2]),
    lambda a, b, t, i: np.broadcast_arrays([t, i, 1], a),
]


@pytest.mark.parametrize("function", CALLS, ids=range(len(CALLS)))
def test_lists_are_numpys_arrays(function: Any) -> None:
    found = kg.kernel_graph(function)(A, B, POINT, PLACE)
    wanted = function(A, B, POINT, PLACE)
    several = isinstance(wanted, (tuple, list))
    pairs = zip(found, wanted, strict=True) if several else [(found, wanted)]
    for result, expected in pairs:
        assert_same(np.asarray(result), np.asarray(expected), ulps=16)


scalars = st.sampled_from(ANY).map(lambda d: np.dtype(d).type(1))
numbers = st.one_of(scalars, st.sampled_from([1, 1.0, True, 2j, 300, -1, 2**63, 2**70, None]))


@settings(max_examples=examples(200), deadline=None)
@example(np.int8(1), [np.uint16(1), np.float32(1)], False)
@example(np.float32(1), [np.int8(1), np.uint16(1)], True)
@given(scalars, st.lists(numbers, min_size=1, max_size=3), st.booleans())
def test_dtypes_are_those_of_np_array(x: Any, others: list[Any], nested: bool) -> None:
    def joined(x: Any) -> Any:
        parts = [x, *others]
        return np.ravel([parts, parts[::-1]] if nested else parts)

    if None in others or np.array([x, *others]).dtype == object:
        with pytest.raises((kg.DTypeError, kg.NumberError)):
            interpreted(joined, x)
    else:
        agrees(joined, x)


def test_results_can_be_assigned_and_written_to() -> None:
    def assigned(a: Any, t: Any) -> Any:
        rows, out = np.atleast_2d([t, t]), np.zeros((2, 3))
        rows[0, 0] = 5
        np.sum([a, a], axis=0, out=out)
        a[0] = [t, 1, 2]
        np.copyto(a[1:], [[t, 4, t]])
        return rows, out, a.copy()

    agrees(assigned, A.copy(), POINT)


def test_the_same_program_as_with_stack() -> None:
    def listed(a: Any, b: Any) -> Any:
        return np.sum([a, b], axis=0) * 2

    def stacked(a: Any, b: Any) -> Any:
        return np.sum(np.stack([a, b]), axis=0) * 2

    programs = [str(kg.kernel_graph(f).program(A, A)).splitlines() for f in (listed, stacked)]
    first, second = ([line.split("#")[0] for line in lines[1:]] for lines in programs)
    assert first == second


def test_in_parts_and_refused() -> None:
    def distinct(a: Any, b: Any) -> Any:
        return np.unique([a, b])

    with pytest.raises(kg.UnsupportedError, match=r"np\.unique cannot be traced"):
        kg.kernel_graph(distinct, untraceable="refuse")(A, A + 1)
    assert_same(np.asarray(kg.kernel_graph(distinct, untraceable="split")(A, A + 1)), distinct(A, A + 1))


@pytest.mark.parametrize(
    "function", [lambda a: np.sum([a, a[0]]), lambda a: np.sqrt([a, 1.0]), lambda a: a * [a, [a[0]]]], ids=range(3)
)
def test_ragged_lists_are_refused_with_their_shapes(function: Any) -> None:
    with pytest.raises(ValueError, match=r"a list of values of shapes .* is no array"):
        kg.kernel_graph(function)(A)
