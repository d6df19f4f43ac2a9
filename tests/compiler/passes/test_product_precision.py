"""What products multiply on a GPU: 16-bit numbers as they are, float32 rounded where that is allowed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kernelgraph as kg
from kernelgraph.compiler.core.types import ArrayType
from kernelgraph.compiler.graph.builder import GraphBuilder
from kernelgraph.compiler.graph.graph import Graph
from kernelgraph.compiler.graph.interpret import interpret_graph
from kernelgraph.compiler.passes.product_precision import multiply_16_bit_operands, round_operands_as_allowed
from kernelgraph.compiler.pipeline import compile_graph_to_program
from kernelgraph.compiler.targets.target import target_of
from kernelgraph.runtime.devices.cuda.libraries.gemm import cublas_calls_of_matmul_task
from kernelgraph.runtime.program.program import Library, Program, Task, packed_member_tasks
from tests.counts import examples

HALVES = ("float16", "bfloat16")


def products(program: Program) -> list[Task]:
    return [t for t in program.tasks if isinstance(t.kernel, Library) and t.kernel.name == "matmul"]


def dtypes(task: Task) -> list[str]:
    return [r.dtype for r in (*task.reads, *task.writes)]


def arrays(dtype: Any, *shapes: tuple[int, ...]) -> list[Any]:
    rng = np.random.default_rng(0)
    return [rng.normal(size=s).astype(dtype) for s in shapes]


F4 = np.float32
# how people write a product of 16-bit numbers whose sums are float32
WIDENED: dict[str, Callable[[Any, Any], Any]] = {
    "operands": lambda x, w: x.astype(F4) @ w.astype(F4),
    "a cast of the transposed": lambda x, w: x.astype(F4) @ np.swapaxes(w, 0, 1).copy().T.astype(F4),
    "the transposed of a cast": lambda x, w: x.astype(F4) @ w.T.astype(F4).T,
    "parts of casts": lambda x, w: x.astype(F4)[:, :40] @ w.astype(F4)[:40],
    "reshaped casts": lambda x, w: x.astype(F4).reshape(2, 32, 64) @ w.astype(F4),
    "matmul with a dtype": lambda x, w: np.matmul(x, w, dtype=F4),
    "einsum": lambda x, w: np.einsum("ij,jk->ik", x.astype(F4), w.astype(F4)),
}


@pytest.mark.parametrize("name", WIDENED)
@pytest.mark.parametrize("dtype", HALVES)
def test_no_operand_is_widened(name: str, dtype: str) -> None:
    x, w = arrays(dtype, (64, 64), (64, 64))
    function = kg.kernel_graph(WIDENED[name], device="cuda")
    (task,) = products(function.program(x, w))
    assert dtypes(task) == [dtype, dtype, "float32"]
    assert cublas_calls_of_matmul_task(task)
    expected = WIDENED[name](x, w)
    found = np.asarray(kg.kernel_graph(WIDENED[name], device="cpu")(x, w))
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("finish", ["", "relu", "bias", "bias relu"])
def test_a_cast_of_a_product_of_bfloat16_is_the_product(finish: str) -> None:
    def layer(x: Any, w: Any, row: Any) -> Any:
        y = (x @ w).astype(F4)
        y = y + row.astype(F4) if "bias" in finish else y
        return (np.maximum(y, 0) if "relu" in finish else y), x * 2

    x, w = arrays(kg.bfloat16, (64, 96), (96, 32))
    row = arrays(F4, (32,))[0]
    program = kg.kernel_graph(layer, device="cuda").program(x, w, row)
    (task,) = products(program)
    assert task.name == "+".join(["matmul", *finish.split()])
    assert dtypes(task) == ["bfloat16", "bfloat16", *["float32"] * (1 + ("bias" in finish))]


def test_what_is_only_wide_on_one_side_stays() -> None:
    x, w = arrays(kg.bfloat16, (64, 64))[0], arrays(F4, (64, 64))[0]
    (task,) = products(kg.kernel_graph(lambda x, w: x @ w, device="cuda").program(x, w))
    assert dtypes(task) == ["float32"] * 3


def test_rounding_of_float16_results_is_the_programs() -> None:
    """NumPy's product of float16 is float16: a number that it has no room for is infinite."""
    x = np.full((64, 64), 60.0, np.float16)
    (task,) = products(kg.kernel_graph(lambda x: (x @ x).astype(F4), device="cuda").program(x))
    assert dtypes(task) == ["float16"] * 3


def test_numpys_dtype_of_a_product_is_that_of_its_sums() -> None:
    x = np.full((2, 3), 300.0, np.float16)
    expected = np.matmul(x, x.T, dtype=F4)
    assert expected.max() == 270000
    np.testing.assert_array_equal(np.asarray(kg.kernel_graph(lambda x: np.matmul(x, x.T, dtype=F4))(x)), expected)


def random_product(draw: Any, dtypes_of_operands: Any) -> Graph:
    """A product of two arrays that are cast, seen through views, or both."""
    b = GraphBuilder("product")
    batch = draw(st.sampled_from([(), (3,), (2, 3)]))
    m, k, n = (draw(st.integers(1, 7)) for _ in range(3))
    sides = []
    for rows, columns in ((m, k), (k, n)):
        own = draw(st.sampled_from([batch, (), (1,) * len(batch)]))
        turned = draw(st.booleans())
        value = b.input(ArrayType((*own, *((columns, rows) if turned else (rows, columns))), draw(dtypes_of_operands)))
        early = draw(st.booleans())
        value = b.cast(value, F4) if early else value
        if turned:
            value = b.permute(value, (*range(len(own)), len(own) + 1, len(own)))
        value = b.broadcast(value, (*batch, rows, columns)) if draw(st.booleans()) else value
        sides.append(b.cast(value, F4))
    return b.finish([b.matmul(*sides)])


@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_random_products_mean_the_same(data: Any) -> None:
    graph = random_product(data.draw, st.sampled_from([np.dtype("f4"), np.dtype("f2"), np.dtype(kg.bfloat16)]))
    given_arrays = [arrays(graph.nodes[n].type.dtype, graph.nodes[n].type.shape)[0] for n in graph.inputs]
    narrow = multiply_16_bit_operands(graph)
    alike = len({a.dtype for a in given_arrays}) == 1 and given_arrays[0].dtype.itemsize == 2
    (product,) = (node for node in narrow.nodes if node.op == "matmul")
    assert (narrow.nodes[product.args[0]].type.dtype != F4) == alike
    (found,), (expected,) = interpret_graph(narrow, given_arrays), interpret_graph(graph, given_arrays)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)  # NumPy's order of sums depends on the layout
    for precision, bound in (("float32", 0), ("tf32", 0), ("bf16", 2.0**-7), ("tf32x3", 2.0**-20)):
        rounded = round_operands_as_allowed(narrow, precision)
        (found,), (expected,) = interpret_graph(rounded, given_arrays), interpret_graph(graph, given_arrays)
        wide = [a.astype("f8") for a in given_arrays]
        size = interpret_graph(graph, [np.abs(a).astype(g.dtype) for a, g in zip(wide, given_arrays, strict=True)])[0]
        assert (np.abs(found.astype("f8") - expected) <= bound * size + 1e-6).all()


# precision -> the name of the task, and the dtype of its operands
ROUNDED = {
    "float32": ("matmul", "float32"),
    "tf32": ("matmul(tf32)", "float32"),
    "bf16": ("matmul(bf16)", "bfloat16"),
    "tf32x3": ("matmul(tf32x3)", "float32"),
}


@pytest.mark.parametrize("precision", ROUNDED)
def test_precision_is_an_option_a_block_and_a_keyword(precision: Any) -> None:
    x, w = arrays(F4, (64, 128), (128, 96))
    name, dtype = ROUNDED[precision]

    def in_block(x: Any, w: Any) -> Any:
        with kg.precision(precision):
            return x @ w

    def check(function: Any, count: int = 1) -> None:
        tasks = [part for task in products(function.program(x, w)) for part in packed_member_tasks(task)]
        assert [t.name.removesuffix(" x2") for t in tasks] == [name] * count
        assert {t.reads[0].dtype for t in tasks} == {dtype}
        assert name in function.explain(x, w)

    check(kg.kernel_graph(lambda x, w: x @ w, device="cuda", precision=precision))
    check(kg.kernel_graph(in_block, device="cuda"))
    check(kg.kernel_graph(lambda x, w: kg.nn.linear(x, w.T, precision=precision), device="cuda"))
    inner = kg.kernel_graph(lambda x, w: x @ w, device="cuda", precision=precision)
    check(kg.kernel_graph(lambda x, w: inner(x, w), device="cuda"))
    other = "tf32" if precision == "float32" else "float32"
    check(kg.kernel_graph(in_block, device="cuda", precision=other))  # what is nearest counts
    if precision != "tf32x3":
        squared = lambda x, w: kg.grad(lambda x, w: (in_block(x, w) ** 2).sum(), argnums=(0, 1))(x, w)  # noqa: E731
        check(kg.kernel_graph(squared, device="cuda"), 3)


def test_an_explanation_says_what_is_multiplied() -> None:
    x = kg.spec((64, 64), kg.bfloat16)
    assert "matmul of bfloat16 into float32" in kg.kernel_graph(lambda x: x @ x, device="cuda").explain(x)
    x = kg.spec((64, 64), "f4")
    assert "matmul of float32" in kg.kernel_graph(lambda x: x @ x, device="cuda").explain(x)
    assert "matmul(tf32) of float32" in kg.kernel_graph(lambda x: x @ x, device="cuda", precision="tf32").explain(x)


@pytest.mark.parametrize("precision", ROUNDED)
def test_a_call_in_a_block_is_of_another_version(precision: Any) -> None:
    """The same numbers on a CPU, whatever is allowed."""
    function = kg.kernel_graph(lambda x, w: x @ w, device="cpu")
    x, w = arrays(F4, (64, 128), (128, 96))
    before = np.asarray(function(x, w))
    with kg.precision(precision):
        np.testing.assert_array_equal(np.asarray(function(x, w)), before)
        np.testing.assert_array_equal(kg.nn.linear(x, w.T, precision="tf32"), x @ w)
    np.testing.assert_array_equal(np.asarray(function(x, w)), before)


def test_a_block_around_a_trace_is_no_part_of_it() -> None:
    """Which a later call would have too, and which an option of the function's own comes before."""
    (x,) = arrays(F4, (64, 64))
    compiled = kg.kernel_graph(lambda x: x @ x, device="cpu")
    called = kg.kernel_graph(lambda x: x @ x, device="cpu", precision="float32")
    with kg.precision("tf32"):
        compiled.compile(x)
        called(x).wait()
    assert "tf32" not in str(compiled.graph(x)) + str(called.graph(x))


def test_convolutions_are_rounded_too() -> None:
    x, w = arrays(F4, (2, 16, 12, 12), (32, 16, 3, 3))
    layer = lambda x, w: kg.nn.conv2d(x, w, precision="tf32")  # noqa: E731
    gradient = lambda x, w: kg.grad(lambda w: layer(x, w).sum())(w)  # noqa: E731
    for body in (layer, gradient):
        assert "(tf32)" in str(kg.kernel_graph(body, device="cuda").program(x, w))


def test_tf32_is_a_matter_of_float32_on_a_gpu() -> None:
    def names(dtype: Any, target: str = "cuda", precision: str = "tf32") -> list[str]:
        b = GraphBuilder("product")
        graph = b.finish([b.matmul(*(b.input(ArrayType((64, 64), np.dtype(dtype))) for _ in range(2)))])
        return [t.name for t in products(compile_graph_to_program(graph, target, precision=precision))]

    assert names("f4") == names("c8") == names("c8", precision="bf16") == ["matmul(tf32)"]
    assert (
        names("f4", precision="float32") == names("f2") == names("f8") == names("c8", precision="tf32x3") == ["matmul"]
    )


def test_precision_costs_as_it_is_fast() -> None:
    def cost(dtype: Any, **options: Any) -> float:
        function = kg.kernel_graph(lambda x: x @ x, device="cuda", **options)
        return products(function.program(kg.spec((4096, 4096), dtype)))[0].cost

    assert cost("f4") > 3 * cost("f4", precision="tf32") > 3 * cost("f4", precision="bf16")
    assert cost("f4") > 1.5 * cost("f4", precision="tf32x3") > 3 * cost("f4", precision="tf32")


@pytest.mark.parametrize("dtype", [*HALVES, "float32"])
def test_layers_keep_the_dtype_of_what_goes_in(dtype: str) -> None:
    """Weights may be wider. On the way all is float32."""
    x, w = arrays(dtype, (6, 8), (8, 8))
    image, kernel, wide = *arrays(dtype, (2, 4, 6, 6), (8, 4, 3, 3)), F4
    layers: dict[str, Callable[[Any], Any]] = {
        "linear": lambda c: kg.nn.linear(x, c(w), c(w[0])),
        "attention": lambda c: kg.nn.attention(x, c(w), c(w)),
        "layer_norm": lambda c: kg.nn.layer_norm(x, c(w[0]), c(w[1])),
        "rms_norm": lambda c: kg.nn.rms_norm(x, c(w[0])),
        "batch_norm": lambda c: kg.nn.batch_norm(image, weight=c(w[0, :4])),
        "group_norm": lambda c: kg.nn.group_norm(image, 2, c(w[0, :4])),
        "conv2d": lambda c: kg.nn.conv2d(image, c(kernel), c(w[0])),
        "softmax": lambda c: kg.nn.softmax(x),
    }
    for name, layer in layers.items():
        for convert in (lambda a: a, lambda a: a.astype(wide)):
            result = layer(convert)
            assert result.dtype == np.dtype(dtype), name
            traced = np.asarray(kg.kernel_graph(lambda: layer(convert))())  # noqa: B023
            assert traced.dtype == result.dtype, name
    large = np.full((4, 64), 40.0, np.float16)
    assert kg.nn.linear(large, large).max() == np.inf  # only what comes out has no room
    assert kg.nn.linear(large, large, np.full(4, -6e4, np.float16)).max() == 42400


MATRICES: dict[str, Callable[[Any, Any], Any]] = {
    "every second column": lambda x, w: x[:, ::2] @ w[:32],
    "of every second column, turned": lambda x, w: x[:, ::2].T @ w,
    "of what a kernel computes": lambda x, w: (x + 1)[:, ::2] @ w[:32],
    "one row again and again": lambda x, w: np.broadcast_to(x[0], (64, 64)) @ w,
    "one column again and again": lambda x, w: np.broadcast_to(x[:, :1], (3, 64, 64)) @ w,
    "backwards": lambda x, w: x[:, ::-1] @ w[::-1],
    "diagonals of pairs": lambda x, w: np.swapaxes(x.reshape(32, 2, 64), 0, 1)[:, :, ::3] @ w[:22],
    "into every second column": lambda x, w: spread(x @ w, 1),
    "into every second row": lambda x, w: spread(x @ w, 0),
    "stacked last": lambda x, w: np.stack([x @ w, w @ x], -1),
    "batches of few long sums": lambda x, w: x.reshape(4, 16, 64) @ w.reshape(4, 64, 16),
}


def spread(x: Any, axis: int) -> Any:
    rows, columns = x.shape
    result = np.zeros((rows * (2 - axis), columns * (1 + axis)), x.dtype)
    result[(slice(None, None, 2), slice(None)) if axis == 0 else (slice(None), slice(None, None, 2))] = x
    return result


@pytest.mark.parametrize("name", MATRICES)
def test_a_library_takes_all_matrices(name: str) -> None:
    """None runs on the host: what lies in neither rows nor columns is copied before."""
    body = MATRICES[name]
    x, w = arrays(F4, (64, 64), (64, 64))
    tasks = products(kg.kernel_graph(body, device="cuda").program(x, w))
    parts = [part for task in tasks for part in packed_member_tasks(task)]
    assert parts
    assert None not in [cublas_calls_of_matmul_task(part) for part in parts]
    np.testing.assert_allclose(np.asarray(kg.kernel_graph(body, device="cpu")(x, w)), body(x, w), rtol=1e-4, atol=1e-4)


def test_a_cpu_takes_matrices_as_they_lie() -> None:
    assert not target_of("cpu").epilogues
    x, w = arrays(F4, (64, 64), (64, 64))
    (task,) = kg.kernel_graph(MATRICES["every second column"], device="cpu").program(x, w).tasks
    assert task.reads[0].strides[-1] == 8


def test_a_cpu_multiplies_float16_in_float32() -> None:
    """A library has such a product, and NumPy's loop adds in float32 as well."""
    x, w = arrays(np.float16, (64, 64), (64, 64))
    multiply = kg.kernel_graph(lambda x, w: x @ w, device="cpu")
    (product,) = [task for task in multiply.program(x, w).tasks if task.name == "matmul"]
    assert dtypes(product) == ["float32"] * 3
    found = np.asarray(multiply(x, w))
    assert found.dtype == np.float16
    np.testing.assert_allclose(found.astype(F4), (x @ w).astype(F4), rtol=1e-3, atol=1e-3)


NARROWED: dict[str, Callable[[Any, Any], Any]] = {
    "transposed": lambda x, w: (x @ w).T.astype(x.dtype),
    "reshaped": lambda x, w: (x @ w).reshape(8, 8, 64).astype(x.dtype),
    "reshaped and transposed": lambda x, w: (x @ w).reshape(8, 8, 64).transpose(2, 0, 1).astype(x.dtype),
    "the gradient of transposed weights": lambda x, w: kg.grad(lambda w: (kg.nn.linear(x, w.T).astype(F4) ** 2).sum())(
        w
    ),
    "a convolution": lambda x, w: kg.nn.conv2d(x.reshape(1, 64, 8, 8), w.reshape(64, 64, 1, 1)),
}


@pytest.mark.parametrize("name", NARROWED)
def test_products_write_16_bits_whatever_they_are_seen_through(name: str) -> None:
    x, w = arrays(kg.bfloat16, (64, 64), (64, 64))
    body = lambda x, w: (NARROWED[name](x, w), x * 2)  # noqa: E731
    tasks = products(kg.kernel_graph(body, device="cuda").program(x, w))
    assert {part.writes[0].dtype for task in tasks for part in packed_member_tasks(task)} == {"bfloat16"}
    expected = NARROWED[name](x, w)
    found = np.asarray(kg.kernel_graph(body, device="cpu")(x, w)[0])
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found.astype(F4), np.asarray(expected).astype(F4), rtol=0.02, atol=0.5)
