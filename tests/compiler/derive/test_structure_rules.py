"""Views, joins, reductions, matrix products, gathers and assignments: both modes against differences, twice."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kernelgraph as kg
from kernelgraph.compiler.core.types import ArrayType
from kernelgraph.compiler.derive.core import call
from kernelgraph.compiler.derive.derive import derive_reverse
from kernelgraph.compiler.derive.rules.host import HOST_RULES
from kernelgraph.compiler.graph.builder import GraphBuilder
from kernelgraph.compiler.graph.interpret import interpret_graph
from kernelgraph.runtime.interpret.numpy_calls import HOST
from tests.counts import examples

from .derivatives import Build, check, check_function, check_graph, graph_of

rng = np.random.default_rng(0)
A, B = rng.normal(size=(4, 6)), rng.normal(size=(4, 6))


def square(g: Any, v: Any) -> Any:
    return g.map("multiply", v, v)


VIEWS: dict[str, Any] = {
    "slice": lambda g, v: g.slice(v, (1, 0), (1, 2), (3, 3)),
    "slice from the end": lambda g, v: g.slice(v, (3, 5), (-1, -2), (4, 3)),
    "permute": lambda g, v: g.permute(v, (1, 0)),
    "broadcast": lambda g, v: g.broadcast(v, (3, 4, 6)),
    "reshape": lambda g, v: g.reshape(v, (3, 8)),
    "windows": lambda g, v: g.windows(v, 1, 3),
    "windows along the first axis": lambda g, v: g.windows(v, 0, 4),
    "windows of one": lambda g, v: g.windows(v, 1, 1),
    "windows of windows": lambda g, v: g.windows(g.windows(v, 0, 2), 1, 3),
    "slice of a slice": lambda g, v: g.slice(g.slice(v, (0, 1), (2, 1), (2, 5)), (1, 0), (1, 2), (1, 3)),
}


@pytest.mark.parametrize("name", VIEWS)
def test_views(name: str) -> None:
    check(lambda g, v: [square(g, VIEWS[name](g, v[0]))], A)
    check(lambda g, v: [VIEWS[name](g, v[0])], A + 1j * B)


@pytest.mark.parametrize("name", ["sum", "prod", "min", "max"])
@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1)])
def test_reductions(name: str, axes: tuple[int, ...]) -> None:
    check(lambda g, v: [g.reduce(name, square(g, v[0]), axes)], A)


def test_factors_that_are_the_same_are_taken_out_of_sums() -> None:
    """The cotangent of the maximum in a logsumexp needs no sum but that of the value."""

    def build(g: Any, v: Any) -> Any:
        m = g.reshape(g.reduce("max", v[0], (1,)), (4, 1))
        e = g.map("exp", g.map("subtract", v[0], m))
        total = g.reshape(g.reduce("sum", e, (1,)), (4, 1))
        return [g.map("add", m, g.map("log", total))]

    derived = derive_reverse(graph_of(build, [A]), [0], [0])
    assert [node.op for node in derived.nodes].count("sum") == 2  # of the exponentials; of those that are the maximum
    check(build, A)


PRODUCTS: list[Build] = [
    lambda g, v: [g.map("multiply", g.map("negative", g.map("subtract", v[0], v[1])), v[2])],
    lambda g, v: [g.map("divide", g.map("add", v[1], v[0]), g.map("exp", v[2]))],
    lambda g, v: [g.map("multiply", g.broadcast(g.map("exp", v[2]), (4, 6)), g.map("multiply", v[0], v[1]))],
    lambda g, v: [g.map("divide", g.map("multiply", v[1], g.map("divide", v[0], 3.0)), g.broadcast(v[2], (4, 6)))],
]


@pytest.mark.parametrize("build", PRODUCTS)
def test_sums_of_products_with_what_is_broadcast(build: Build) -> None:
    check(build, A, B[:, :1], 2 + B[0] ** 2)
    check(build, A, B[0], 2 + B[:, 1:2] ** 2)
    check(build, A, np.float64(0.3), 2 + B[:1] ** 2)


def _sums_of_exponentials(g: Any, v: Any, *, maximum: bool) -> Any:
    """log(sum(exp(x - m))) and exp(-sum(exp(x - m))), m: the rows' maximum, or any numbers."""
    m = g.reshape(g.reduce("max", v[0], (1,)), (4, 1)) if maximum else v[1]
    e = g.reduce("sum", g.map("exp", g.map("subtract", v[0], m)), (1,))
    return [g.map("log", e), g.map("exp", g.map("negative", e))]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("build", [
    *PRODUCTS,
    partial(_sums_of_exponentials, maximum=True),
    partial(_sums_of_exponentials, maximum=False),
    lambda g, v: [g.map("multiply", g.map("tanh", g.map("multiply", v[0], v[1])), v[2])],
])  # fmt: skip
@settings(max_examples=examples(60))
@given(data=st.data())
def test_gradients_are_finite_where_those_of_sums_of_products_are(build: Build, dtype: Any, data: Any) -> None:
    """At any scale of the arguments and of the cotangents: as with each product summed as it is."""
    smallest, maximum = 1e3 * float(np.finfo(dtype).smallest_normal), getattr(build, "keywords", {}).get("maximum")
    most, decades = float(np.finfo(dtype).max), 300 if dtype == np.float64 else 37
    scale = st.one_of(st.sampled_from([1.0, most / 4]), st.integers(-decades, decades).map(lambda n: 10.0**n))
    scales = [data.draw(scale) for _ in range(5)]
    given = (A, B[:, :1], 2 + B[:, 1:2] ** 2)
    with np.errstate(over="ignore"):
        arrays = [(a * s).astype(dtype) for a, s in zip(given, scales, strict=False)]
    graph = graph_of(build, arrays)
    shapes = [graph.nodes[n].type.shape for n in graph.outputs]
    cts = [(np.resize(2 + np.tanh(B), n) * s).astype(dtype) for n, s in zip(shapes, scales[3:], strict=False)]
    wanted, outputs = range(len(arrays)), range(len(graph.outputs))
    with np.errstate(all="ignore"), pytest.MonkeyPatch.context() as patch:
        found = interpret_graph(derive_reverse(graph, wanted, outputs), [*arrays, *cts])[len(cts) :]
        patch.setattr(call, "_sum_of_product", lambda g, value, axes: g.reduce("sum", value, axes, value.dtype))
        plain = interpret_graph(derive_reverse(graph, wanted, outputs), [*arrays, *cts])[len(cts) :]
    for a, b in zip(found, plain, strict=True):
        finite = np.isfinite(b)
        size = max(scales[3:]) if maximum else np.abs(b[finite]).max(initial=smallest)  # what cancels
        assert np.all(np.isfinite(a[finite]))
        np.testing.assert_allclose(a[finite], b[finite], rtol=1e-4, atol=1e-5 * size)


@pytest.mark.parametrize("zeros", [0, 1, 2])
def test_products_may_have_zeros(zeros: int) -> None:
    x = A.copy()
    x[1, :zeros] = 0
    check(lambda g, v: [g.reduce("prod", v[0], (1,))], x)
    (product,) = derive_reverse(graph_of(lambda g, v: [g.reduce("prod", v[0], (1,))], [x]), [0], [0]).outputs[1:]
    assert product


def test_ties_share_equally() -> None:
    x = np.array([[1.0, 3, 3], [2, 2, 2]])
    graph = derive_reverse(graph_of(lambda g, v: [g.reduce("max", v[0], (1,))], [x]), [0], [0])
    _, found = interpret_graph(graph, [x, np.ones(2)])
    np.testing.assert_allclose(found, [[0, 0.5, 0.5], [1 / 3] * 3])


def test_joins_and_updates() -> None:
    check(lambda g, v: [square(g, g.concat([v[0], square(g, v[1]), v[0]], 1))], A, B)
    value = rng.normal(size=(2, 3))
    check(lambda g, v: [square(g, g.update(v[0], v[1], (1, 0), (2, 2)))], A, value)
    check(lambda g, v: [square(g, g.update(v[0], square(g, v[0]), (0, 0), (1, 1)))], A)


SHAPES = [((3, 4), (4, 5)), ((2, 3, 4), (4, 5)), ((3, 4), (2, 4, 5)), ((2, 1, 3, 4), (3, 4, 2))]


@pytest.mark.parametrize("a, b", SHAPES)
@pytest.mark.parametrize("kinds", ["rr", "rc", "cr", "cc"])
def test_matrix_products(a: tuple[int, ...], b: tuple[int, ...], kinds: str) -> None:
    x, y = (
        rng.normal(size=s) + (1j * rng.normal(size=s) if k == "c" else 0) for s, k in zip((a, b), kinds, strict=True)
    )
    check(lambda g, v: [g.matmul(*v)], x, y)


@pytest.mark.parametrize("batch", [(2,), (3, 2), (1,)])
def test_what_comes_back_to_one_matrix_of_many_products_is_one_product(batch: tuple[int, ...]) -> None:
    """Of the rows of all batches: no sum of products, which would be stored."""

    def loss(x: Any, w: Any) -> Any:
        return (np.matmul(x, w) ** 2).sum()

    x, w = np.ones((*batch, 50, 70)), np.ones((70, 40))
    graph = kg.kernel_graph(lambda x, w: kg.grad(loss, 1)(x, w), device="cpu").graph(x, w)
    assert [n.type.shape for n in graph.nodes if n.op == "matmul"][1:] == [(70, 40)]
    assert "sum" not in {n.op for n in graph.nodes}


def test_casts_take_the_real_part_back() -> None:
    check(lambda g, v: [square(g, g.cast(v[0], np.complex128))], A)
    check(lambda g, v: [square(g, g.cast(v[0], np.float64))], A + 1j * B)


def test_gathers_add_up() -> None:
    rows, columns = np.array([0, 1, -1, 1]), np.array([5, 2, 2, 2])
    check(lambda g, v: [square(g, g.gather(v[0], v[1:], [0, 1], [], (4,)))], A, rows, columns)
    check(lambda g, v: [square(g, g.gather(v[0], [g.reshape(v[1], (4, 1))], [0], [1], (4, 6)))], A, rows)


def test_the_last_assignment_counts() -> None:
    places = np.array([2, 0, 2, -4])

    def build(g: Any, v: Any) -> Any:
        key = ("array", (None, None, None))
        return [square(g, r) for r in g.host("setitem", [v[0], v[2], v[1]], [v[0].type], key=key)]

    check(build, A, rng.normal(size=(4, 6)), places)
    check(build, A, rng.normal(size=6), places)
    check(build, A, np.array(2.0), places)


def test_additions_at_places() -> None:
    places = np.array([2, 0, 2, -4])
    for ufunc in ("add", "subtract"):

        def build(g: Any, v: Any, ufunc: str = ufunc) -> Any:
            key = ("array", (None, None, None))
            found = g.host("at", [v[0], v[2], v[1]], [v[0].type], key=key, ufunc=ufunc)
            return [square(g, r) for r in found]

        check(build, A, rng.normal(size=(4, 6)), places)


@pytest.mark.parametrize("axis", [0, 1, None])
def test_put_along_axis(axis: int | None) -> None:
    indices = np.array([[1, 0, 1, 3, -1, 2]]) if axis == 0 else np.array([[1], [0], [-2], [1]])
    indices = np.array([3, 1, 7, 3]) if axis is None else indices
    values = rng.normal(size=indices.shape)

    def build(g: Any, v: Any) -> Any:
        return [square(g, r) for r in g.host("put_along_axis", [v[0], v[2], v[1]], [v[0].type], axis=axis)]

    check(build, A, values, indices)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
def test_running(name: str, axis: int) -> None:
    x = A.copy()
    x[2, 3] = 0
    check(lambda g, v: [square(g, r) for r in g.host(name, [v[0]], [v[0].type], axis=axis)], x, near=1e-5)


def test_a_stencil_s_gradient_is_a_stencil() -> None:
    """Five slices of one array come back as reads of one array with zeros around it."""
    graph = graph_of(lambda g, v: [g.reduce("sum", square(g, laplacian(g, v[0])), (0, 1))], [A])
    derived = derive_reverse(graph, [0], [0])
    ops = [node.op for node in derived.nodes]
    assert ops.count("update") == 1
    check(lambda g, v: [g.reduce("sum", square(g, laplacian(g, v[0])), (0, 1))], A)


@pytest.mark.parametrize("seed", range(12))
def test_the_inside_of_a_stencil_s_gradient_has_no_zeros_around_it(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is read of the cotangent there are slices of it; strips around the inside look it up."""
    random = np.random.default_rng(seed)
    rank = int(random.integers(1, 4))
    reach = random.integers(0, 3, rank)
    reach[0] = max(1, reach[0])
    shape = (54, 52, 50)[:rank]
    size = tuple(int(n - r) for n, r in zip(shape, reach, strict=True))

    def build(g: Any, v: Any) -> Any:
        total = g.slice(v[0], (0,) * rank, (1,) * rank, size)
        for factor in (-1.5, 2.0, None):
            starts = [int(random.integers(0, r + 1)) for r in reach]
            part = g.slice(v[0], starts, (1,) * rank, size)
            total = g.map("add", total, part if factor is None else g.map("multiply", part, factor))
        return [g.reduce("sum", g.map("multiply", square(g, total), total), range(rank))]

    x = random.normal(size=shape)
    graph = graph_of(build, [x])
    expected = interpret_graph(derive_reverse(graph, [0], [0]), [x, np.array(1.0)])[1]
    monkeypatch.setattr("kernelgraph.compiler.derive.core.cotangents.INSIDE", 1)
    derived = derive_reverse(graph, [0], [0])
    assert "update" not in {node.op for node in derived.nodes}
    np.testing.assert_allclose(interpret_graph(derived, [x, np.array(1.0)])[1], expected, rtol=1e-11, atol=1e-11)
    check_graph(graph, [x], order=1)


def laplacian(g: Any, v: Any) -> Any:
    def part(i: int, j: int) -> Any:
        return g.slice(v, (i, j), (1, 1), (2, 4))

    total = g.map("multiply", part(1, 1), -4.0)
    for i, j in ((0, 1), (2, 1), (1, 0), (1, 2)):
        total = g.map("add", total, part(i, j))
    return total


def test_parts_side_by_side_are_put_together() -> None:
    def build(g: Any, v: Any) -> Any:
        left, right = (g.slice(v[0], (0, i), (1, 1), (4, 3)) for i in (0, 3))
        return [g.map("multiply", square(g, left), right)]

    derived = derive_reverse(graph_of(build, [A]), [0], [0])
    assert sum(node.op == "update" for node in derived.nodes) == 2
    check(build, A)


def test_one_number_in_a_box_reads_no_array() -> None:
    graph = graph_of(lambda g, v: [g.reduce("sum", g.slice(v[0], (1, 1), (1, 1), (2, 3)), (0, 1))], [A])
    derived = derive_reverse(graph, [0], [0])
    _, found = interpret_graph(derived, [A, np.array(2.0)])
    expected = np.zeros_like(A)
    expected[1:3, 1:4] = 2
    np.testing.assert_array_equal(found, expected)


def test_every_host_call_has_a_rule() -> None:
    assert set(HOST_RULES) == set(HOST)


def test_a_host_call_s_results_are_one_operation() -> None:
    """A rule sees all cotangents at once."""
    types = [ArrayType((4, 6), A.dtype)]
    graph = graph_of(lambda g, v: g.host("cumsum", [v[0]], types, axis=0) * 2, [A])
    _, _, found = interpret_graph(derive_reverse(graph, [0], [0, 1]), [A, A, A])
    np.testing.assert_allclose(found, 2 * np.cumsum(A[::-1], 0)[::-1])


def recurrent(turns: int, width: int, rows: int) -> Any:
    """h = tanh([x_t h] @ w), for some turns; an x of each."""

    def f(w: Any, xs: Any) -> Any:
        h = np.zeros((rows, width))
        for x in xs[:turns]:
            h = np.tanh(np.concatenate([x, h], 1) @ w)
        return h * h

    return f


@pytest.mark.parametrize(("turns", "width", "rows"), [(1, 3, 2), (4, 3, 1), (4, 5, 2), (3, 2, 9)])
def test_products_of_turns_are_right(turns: int, width: int, rows: int) -> None:
    check_function(
        recurrent(turns, width, rows), 0.3 * rng.normal(size=(2 * width, width)), rng.normal(size=(turns, rows, width))
    )


def test_the_gradient_of_a_matrix_that_turns_multiply_by_is_one_product() -> None:
    """And of the product with its transpose there is only the half that a turn before wants."""
    turns, width, rows = 5, 8, 4
    b = GraphBuilder("recurrent")
    w, h = b.input(ArrayType((2 * width, width), np.dtype("f8"))), b.input(ArrayType((rows, width), np.dtype("f8")))
    xs = [b.input(ArrayType((rows, width), np.dtype("f8"))) for _ in range(turns)]
    for x in xs:
        h = b.map("tanh", b.matmul(b.concat([x, h], 1), w))
    products = [n.type.shape for n in derive_reverse(b.finish([h]), [0], [0]).nodes if n.op == "matmul"]
    assert products.count((2 * width, width)) == 1
    assert products.count((rows, width)) == turns + turns - 1  # forward and back
    assert len(products) == 2 * turns


@pytest.mark.parametrize("rows", [40, 3])
def test_products_are_joined_where_what_they_take_is_small(rows: int) -> None:
    b = GraphBuilder("sums")
    w = b.input(ArrayType((8, 8), np.dtype("f8")))
    xs = [b.input(ArrayType((rows, 8), np.dtype("f8"))) for _ in range(3)]
    results = [b.matmul(x, w) for x in xs]
    graph = derive_reverse(b.finish([b.map("add", b.map("add", *results[:2]), b.map("sin", results[2]))]), [0], [0])
    backward = [n for n in graph.nodes if n.op == "matmul" and n.type.shape == (8, 8)]
    assert len(backward) == (3 if rows == 40 else 1)
