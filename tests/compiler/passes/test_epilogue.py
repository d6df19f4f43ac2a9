"""Epilogues of matmuls: what is absorbed, what is not, and that it means the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernelgraph.compiler.core.types import ArrayType
from kernelgraph.compiler.graph.builder import GraphBuilder
from kernelgraph.compiler.graph.graph import Graph, Value
from kernelgraph.compiler.graph.interpret import interpret_graph
from kernelgraph.compiler.passes.matmul_epilogue import absorb_matmul_epilogues
from kernelgraph.compiler.passes.product_precision import multiply_16_bit_operands
from kernelgraph.compiler.passes.simplify import simplify_graph
from kernelgraph.compiler.pipeline import compile_graph_to_program
from kernelgraph.runtime.program.program import Program, Task
from tests.compiler.access_audit import run_program
from tests.counts import examples

ACTIVATIONS = ("", "relu", "maximum", "zero first", "gelu")


def network(
    dtype: str = "float32", bias: tuple[int, ...] | None = (7,), first: bool = False, activation: str = "relu",
    batch: tuple[int, ...] = (), reader: str = "output", narrowed: str = "",
    beside: bool = False,
) -> Graph:  # fmt: skip
    """activation(x @ w + bias) of x (batch, 5, 6) and w (6, 7), and what reads it. first: the bias comes first.
    narrowed: what is cast to the dtype, `product`, `sum` or `result`; a product of bfloat16 is float32 in NumPy.
    beside: there is other work, so that small products are replayed with it."""
    b = GraphBuilder("network")
    b.where = lambda: f"page.py:{len(b.nodes)}"
    kind = np.dtype(dtype)
    x, w = b.input(ArrayType((*batch, 5, 6), kind)), b.input(ArrayType((6, 7), kind))
    value = product = b.matmul(x, w)
    value = b.cast(value, kind) if narrowed == "product" else value
    if bias is not None:
        row = b.input(ArrayType(bias, kind))
        value = b.map("add", *((row, value) if first else (value, row)))
    summed = value
    value = b.cast(value, kind) if narrowed == "sum" else value
    if activation in ("maximum", "zero first", "negative zero"):
        zero = b.const(-0.0 if activation == "negative zero" else 0.0, kind)
        value = b.map("maximum", *((zero, value) if activation == "zero first" else (value, zero)))
    elif activation == "where":
        value = b.map("where", b.map("greater", value, 0), value, 0)
    elif activation == "gelu":
        value = gelu(b, value, True)
    elif activation:
        value = gelu(b, value, False) if activation == "erf" else b.map(activation, value)
    value = b.cast(value, kind) if narrowed == "result" else value
    outputs = {"output": [value], "product": [value, product], "sum": [value, summed]}
    if beside:
        return b.finish([value, b.map("negative", x)])
    if reader == "map":
        return b.finish([b.map("exp", value)])
    if reader == "reduce":
        return b.finish([b.reduce("sum", value, (1,))])
    if reader == "matmul":
        return b.finish([b.matmul(value, b.input(ArrayType((7, 3), kind)))])
    if reader == "view":
        return b.finish([b.reshape(value, (-1,))])
    return b.finish(outputs[reader])


def gelu(b: GraphBuilder, x: Value, approximate: bool) -> Value:
    return b.add("gelu", (x.number,), x.type, (("approximate", approximate),))


def calls(program: Program) -> list[Task]:
    return [task for task in program.tasks if task.name.startswith("matmul")]


def epilogues(graph: Graph) -> list[tuple[str, ...]]:
    return [
        dict(n.attrs).get("epilogue", ())
        for n in absorb_matmul_epilogues(simplify_graph(graph)).nodes
        if n.op == "matmul"
    ]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ("bias", "relu")),
        ({"first": True}, ("bias", "relu")),
        ({"bias": (1, 7)}, ("bias", "relu")),
        ({"bias": None}, ("relu",)),
        ({"activation": ""}, ("bias",)),
        ({"activation": "maximum"}, ("bias", "relu")),
        ({"activation": "zero first"}, ("bias", "relu")),
        ({"batch": (3, 2), "dtype": "float16"}, ("bias", "relu")),
        ({"activation": "gelu", "dtype": "float16"}, ("bias", "gelu")),
        ({"activation": "gelu", "bias": None, "dtype": "float16"}, ("gelu",)),
        ({"reader": "view"}, ("bias", "relu")),
        ({"activation": "gelu"}, ()),  # the library's is 30 ulp off
        ({"activation": "erf", "dtype": "float16"}, ()),
        ({"activation": "negative zero"}, ()),
        ({"activation": "where"}, ()),  # of NaN it is 0
        ({"activation": "exp"}, ()),  # whose kernel adds the bias for nothing
        ({"bias": None, "activation": ""}, ()),
        ({"bias": (5, 1)}, ()),  # a column
        ({"bias": (5, 7)}, ()),
        ({"dtype": "float64"}, ()),
        ({"dtype": "int32"}, ()),
        ({"reader": "map"}, ()),
        ({"reader": "reduce"}, ()),
        ({"reader": "product"}, ()),
        ({"reader": "sum"}, ("bias",)),  # which is stored, as it is an output
    ],
)
def test_what_is_absorbed(options: Any, expected: tuple[str, ...]) -> None:
    assert epilogues(network(**options)) == [expected]


def test_a_chain_of_layers() -> None:
    assert epilogues(network(reader="matmul")) == [("bias", "relu"), ()]


BLOCK = {
    "two convolutions": (lambda b, p, q: [b.concat([p, q], 1)], 2, 0),
    "one twice": (lambda b, p, q: [b.concat([p, p], 1)], 1, 2),
    "with an array": (lambda b, p, q: [b.concat([p, b.map("exp", q)], 1)], 1, 2),
    "read as well": (lambda b, p, q: [b.concat([p, q], 1), b.map("exp", p)], 2, 2),
    "another axis": (lambda b, p, q: [b.concat([p, p], 3)], 1, 2),
    "within another": (lambda b, p, q: [b.concat([b.concat([p, q], 1), b.map("exp", q)], 1)], None, None),
    "within another along the last axis": (lambda b, p, q: [b.concat([b.concat([p, q], 1)] * 2, 3)], None, None),
}  # fmt: skip


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("name", BLOCK)
def test_products_with_their_relu_lie_in_a_concatenation(name: str, batch: int) -> None:
    """Images of products in another shape: the relu is their epilogue, and where nothing else reads them they are
    written where they belong."""
    body, products, kernels = BLOCK[name]
    b, kind = GraphBuilder("block"), np.dtype("f4")
    x = b.input(ArrayType((*(batch,) * (batch > 1), 512, 1024), kind))
    p, q = (
        b.map("relu", b.reshape(b.matmul(b.input(ArrayType((n, 512), kind)), x), (batch, n, 32, 32))) for n in (96, 64)
    )
    graph = b.finish(body(b, p, q))
    program = compile_graph_to_program(graph, "cuda")
    names = [t.name for t in program.tasks]
    relus = names.count("matmul+relu")
    assert products is None or (relus, len(names) - relus) == (products, kernels), names
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=graph.nodes[n].type.shape).astype("f4") for n in graph.inputs]
    simple = absorb_matmul_epilogues(simplify_graph(graph))
    for found, expected in zip(interpret_graph(simple, arrays), interpret_graph(graph, arrays), strict=True):
        np.testing.assert_array_equal(found, expected)
    on_cpu = run_program(compile_graph_to_program(graph), arrays)
    for found, expected in zip(on_cpu, interpret_graph(graph, arrays), strict=True):
        np.testing.assert_allclose(found.view("f4").reshape(expected.shape), expected, rtol=1e-4, atol=1e-4)


def test_the_program_names_the_epilogue_and_all_lines() -> None:
    (task,) = calls(compile_graph_to_program(network(beside=True), "cuda"))
    assert task.name == "matmul+bias+relu" and task.kernel.attrs == (("epilogue", ("bias", "relu")),)  # type: ignore[union-attr]
    assert task.line == "page.py:3, page.py:5, page.py:6"
    assert [t.name for t in compile_graph_to_program(network(), "cpu").tasks] == ["matmul", "add_relu"]


def test_a_small_product_alone_is_one_call() -> None:
    """Its host time is that of a launch: a graph with a library's kernel is replayed as any other."""
    b = GraphBuilder("layers")
    assert [t.name for t in compile_graph_to_program(network(), "cuda").tasks] == ["matmul+bias+relu"]
    x, w = (b.input(ArrayType(shape, np.dtype("f4"))) for shape in ((4096, 1024), (1024, 1024)))
    assert [t.name for t in compile_graph_to_program(b.finish([b.map("relu", b.matmul(x, w))]), "cuda").tasks] == [
        "matmul+relu"
    ]


def test_small_independent_products_are_rather_batched() -> None:
    def names(n: int) -> set[str]:
        b = GraphBuilder("branches")
        kind = ArrayType((n, n), np.dtype("f4"))
        x = b.input(kind)
        graph = b.finish([b.map("relu", b.matmul(x, b.input(kind))) for _ in range(8)])
        return {t.name for t in compile_graph_to_program(graph, "cuda").tasks}

    assert names(64) == {"matmul", "relu"} and names(2048) == {"matmul+relu"}


@pytest.mark.parametrize("narrowed", ["product", "sum", "result"])
@pytest.mark.parametrize("activation", ["", "relu", "gelu"])
def test_products_wanted_in_16_bits(narrowed: str, activation: str) -> None:
    """They are done in 16 bits, which lets go of nothing: sums are in float32."""
    graph = network("bfloat16", (7,), False, activation, narrowed=narrowed, beside=True)
    (task,) = calls(compile_graph_to_program(graph, "cuda"))
    assert task.name == "+".join(["matmul", "bias", *([activation] if activation else [])])
    assert {r.dtype for r in (*task.reads, *task.writes)} == {"bfloat16"}


def test_products_of_16_bits_wanted_in_more() -> None:
    graph = network("bfloat16", None, activation="")
    (task,) = compile_graph_to_program(graph, "cuda").tasks
    assert [r.dtype for r in (*task.reads, *task.writes)] == ["bfloat16"] * 2 + ["float32"]
    (task,) = compile_graph_to_program(
        network("bfloat16", None, activation="", narrowed="result", reader="map"), "cuda"
    ).tasks[:1]
    assert task.name == "matmul" and task.writes[0].dtype == "bfloat16"


@settings(max_examples=examples(60), deadline=None)
@given(
    st.sampled_from(["float32", "float16", "bfloat16"]), st.sampled_from([None, (7,), (1, 7)]), st.booleans(),
    st.sampled_from(ACTIVATIONS), st.sampled_from([(), (3,), (2, 3)]), st.sampled_from(["output", "view"]),
    st.sampled_from(["", "product", "sum", "result"]),
)  # fmt: skip
def test_it_means_the_same(
    dtype: str, bias: Any, first: bool, activation: str, batch: Any, reader: str, narrowed: str
) -> None:
    graph = network(dtype, bias, first, activation, batch, reader, narrowed)
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=graph.nodes[n].type.shape).astype(dtype) for n in graph.inputs]
    arrays[0].flat[0], arrays[0].flat[8] = np.nan, np.inf
    finished = absorb_matmul_epilogues(multiply_16_bit_operands(graph))
    for found, expected in zip(interpret_graph(finished, arrays), interpret_graph(graph, arrays), strict=True):
        eps = 0 if dtype == "float32" else 2.0**-7  # in 16 bits only the result is rounded
        np.testing.assert_allclose(found.astype("f8"), expected.astype("f8"), rtol=eps, atol=4 * eps)


@pytest.mark.parametrize("step", [1, 2])
def test_a_bias_that_is_a_part_of_another_array_has_no_gaps(step: int) -> None:
    """The row is a product of its own that an update of another array takes over, element by element."""
    b = GraphBuilder("shared")
    x, w, base = (b.input(ArrayType(shape, np.dtype("f4"))) for shape in ((1, 9), (9, 9), (1, 18)))
    row = b.matmul(x, w)
    layer = b.map("relu", b.map("add", b.matmul(w, w), row))
    graph = b.finish([layer, b.update(base, row, (0, 0), (1, step))])
    found = [t for t in compile_graph_to_program(graph, "cuda").tasks if t.name.startswith("matmul+")]
    assert [t.reads[2].strides[-1] for t in found] == [4]
