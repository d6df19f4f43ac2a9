"""Matrix products on a GPU with their epilogues, in every dtype that has them, against NumPy's in wider types."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.compiler.core.types import ArrayType
from kernelgraph.compiler.graph.builder import GraphBuilder
from kernelgraph.compiler.graph.interpret import interpret_graph
from kernelgraph.dsl.array.devices import device_named
from kernelgraph.runtime.core.disk_cache import DiskCache
from kernelgraph.runtime.devices.cuda.libraries import product_ways
from kernelgraph.runtime.devices.cuda.libraries.product_ways import USUAL
from tests.counts import examples
from tests.gpu.gpu_runs import Call, plan_of
from tests.gpu.random_products import RandomProduct, random_products

pytestmark = pytest.mark.usefixtures("device")
EPS = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
FINISHED = ("float32", "float16", "bfloat16")  # that have epilogues
RNG = np.random.default_rng(0)


def relu(x: Any) -> Any:
    return np.maximum(x, 0)


def gelu(x: Any) -> Any:
    return kg.gelu(x, approximate=True)


def wide_gelu(x: Any) -> Any:
    return 0.5 * x * (1 + np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3)))


ACTIVATIONS: dict[str, Any] = {"": (lambda x: x,) * 2, "relu": (relu, relu), "gelu": (gelu, wide_gelu)}
# batch of x, batch of w, and how each lies: transposed, inside of a larger array, at an odd address
CASES = [
    ((), (), ""), ((), (), "x transposed"), ((), (), "w transposed"), ((), (), "inside"), ((3,), (), ""),
    ((2, 3), (), "inside"), ((3,), (3,), ""), ((), (4,), "w transposed"), ((2, 1), (3,), ""),
]  # fmt: skip


def numbers(dtype: str, shape: tuple[int, ...], transposed: bool = False, inside: bool = False) -> Any:
    """Memory in which `seen` finds an array of the shape."""
    lying = (*shape[:-2], *shape[:-3:-1]) if transposed else shape
    return RNG.normal(size=(*lying[:-2], lying[-2] + 2 * inside, lying[-1] + 3 * inside)).astype(dtype)


def seen(whole: Any, transposed: bool = False, inside: bool = False) -> Any:
    part = whole[..., 1:-1, 1:-2] if inside else whole
    return np.swapaxes(part, -1, -2) if transposed else part


def near(found: Any, expected: Any, size: Any, dtype: str) -> None:
    """size: of the terms that were added."""
    found = np.asarray(found).astype("f8")
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    good = np.isfinite(expected)
    np.testing.assert_array_equal(found[~good], expected[~good])
    error = np.abs(found[good] - expected[good]) / (EPS[dtype] * (1 + size[good]))
    assert error.max(initial=0) < 6, error.max()


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("dtype", FINISHED)
@pytest.mark.parametrize(("biased", "activation"), [(True, ""), (True, "relu"), (False, "relu"), (True, "gelu")])
def test_epilogues(case: Any, dtype: str, biased: bool, activation: str) -> None:
    for sizes in ((64, 128, 96), (37, 83, 101)):
        check(case, dtype, biased, activation, *sizes)


def check(case: Any, dtype: str, biased: bool, activation: str, m: int, n: int, k: int) -> None:
    batch_x, batch_w, how = case
    own, wide = ACTIVATIONS[activation]
    inside = how == "inside"
    x = numbers(dtype, (*batch_x, m, k), how == "x transposed", inside)
    w = numbers(dtype, (*batch_w, k, n), how == "w transposed", inside)
    bias = numbers(dtype, (1, n), False, inside)
    parts = [(x, how == "x transposed"), (w, how == "w transposed"), (bias, False)]
    seen(*parts[0], inside)[..., 1, 2] = np.nan
    seen(*parts[1], inside)[..., 3, 4:6] = np.inf, -np.inf

    def body(*arrays: Any) -> Any:
        x, w, bias = (seen(a, t, inside) for a, (_, t) in zip(arrays, parts, strict=True))
        product = (x @ w).astype(x.dtype)
        return own(product + bias if biased else product), x * 2  # small products alone are left to a kernel

    call = kg.kernel_graph(body, device="cuda")
    (name,) = [task.name for task in call.program(x, w, bias).tasks if task.name.startswith("matmul")]
    absorbed = activation != "gelu" or dtype != "float32"
    assert name == "+".join(
        ["matmul", *["bias"] * biased, *([activation] if activation else [])] if absorbed else ["matmul"]
    )
    with np.errstate(all="ignore"):
        a, b, row = (seen(*part, inside).astype("f8") for part in parts)
        expected = wide(a @ b + row if biased else a @ b)
    size = np.abs(np.nan_to_num(a, posinf=0)) @ np.abs(np.nan_to_num(b, posinf=0, neginf=0))
    first = np.asarray(call(x, w, bias)[0])
    near(first, expected, size, dtype)
    assert "runs on the host" not in call.explain(x, w, bias, verbose=True)
    assert np.asarray(call(x, w, bias)[0]).tobytes() == first.tobytes()


@pytest.mark.parametrize(
    "sizes", [(2048, 2048, 2048), (65536, 1024, 64), (16, 4096, 8192), (3, 5000, 7001), (256, 8, 4096)]
)
@pytest.mark.parametrize("dtype", FINISHED)
def test_relu_keeps_nan_in_products_of_every_size(sizes: tuple[int, int, int], dtype: str) -> None:
    """Other sizes are other kernels of the library's, some of which lose NaN."""
    m, n, k = sizes
    x, w, bias = numbers(dtype, (m, k)), numbers(dtype, (k, n)), numbers(dtype, (1, n))
    x[1, 2] = bias[0, 3] = np.nan
    biased = lambda x, w, bias: (relu((x @ w).astype(x.dtype) + bias), bias * 2)  # noqa: E731
    alone = lambda x, w, bias: (relu((x @ w).astype(x.dtype)), bias * 2)  # noqa: E731
    for body, others in ((biased, m - 1), (alone, 0)):
        call = kg.kernel_graph(body, device="cuda")
        assert any("+relu" in task.name for task in call.program(x, w, bias).tasks)
        lost = np.isnan(np.asarray(call(x, w, bias)[0]))
        assert lost[1].all() and lost.sum() == n + others


@pytest.mark.parametrize("dtype", FINISHED)
@pytest.mark.parametrize("batch", [(), (2,), (2, 3)])
def test_relu_where_no_kernel_of_the_librarys_keeps_nan(
    device: Any, monkeypatch: pytest.MonkeyPatch, dtype: str, batch: tuple[int, ...]
) -> None:
    """A kernel of the device's own finishes the product in place, here in the middle of a larger array."""
    monkeypatch.setattr(device.blas._lt, "_keeps_nan", lambda *trial: False)
    monkeypatch.setattr(device.blas._lt, "_verdicts", {})
    b, kind = GraphBuilder("relu"), np.dtype(dtype)
    x, w, row = (b.input(ArrayType(shape, kind)) for shape in ((*batch, 31, 45), (*batch, 45, 301), (301,)))
    end = b.map("relu", b.map("add", b.cast(b.matmul(x, w), kind), row))
    before = b.map("negative", row)
    wide = b.broadcast(before, (*batch, 31, 301))
    graph = b.finish([b.concat([wide, end], len(batch) + 1)])
    arrays = [RNG.normal(size=graph.nodes[n].type.shape).astype(dtype) for n in graph.inputs]
    arrays[0][..., 3, 4] = np.nan
    plan = plan_of(graph)
    assert "matmul+bias+relu" in [task.name for task in plan.tasks]
    (expected,) = interpret_graph(graph, arrays)
    (found,) = Call(device, device.prepare(plan), arrays).results([expected])
    size = np.full(expected.shape, 45.0)
    near(found, expected.astype("f8"), size, dtype)


def test_layers_replayed_on_streams_and_from_threads() -> None:
    """Each call has biases of its own: none takes another's."""
    w = numbers("float32", (200, 200)) / 14

    def body(x: Any, biases: Any) -> Any:
        return tuple(relu(relu(x @ w + bias) @ w + bias) for bias in biases)

    call = kg.kernel_graph(body, device="cuda", streams="max")
    x = numbers("float32", (150, 200))
    assert "matmul+bias+relu" in {t.name for t in call.program(x, [x[0], x[1]]).tasks}

    def one(turn: int) -> None:
        rng = np.random.default_rng(turn)
        biases = [rng.normal(size=200).astype("f4") * 10 for _ in range(2)]
        for found, expected in zip(call(x, biases), body(x.astype("f8"), biases), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-3)

    for turn in range(8):
        one(turn)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(one, range(40)))


ERRORS = {
    "float32": (0.0, 2.0**-21),
    "tf32": (2.0**-18, 2.0**-10),
    "bf16": (2.0**-15, 2.0**-7),
    "tf32x3": (0, 2.0**-19),
}


@pytest.mark.parametrize("precision", ERRORS)
@pytest.mark.parametrize("given", ["option", "context", "block"])
def test_float32_is_rounded_as_allowed(precision: Any, given: str) -> None:
    x, w = numbers("float32", (300, 700)), numbers("float32", (700, 200))
    expected, size = x.astype("f8") @ w.astype("f8"), np.abs(x.astype("f8")) @ np.abs(w.astype("f8"))

    def error(body: Any) -> float:
        def in_block(x: Any, w: Any) -> Any:
            with kg.precision(precision):
                return body(x, w)

        call = kg.kernel_graph(in_block if given == "block" else body, device="cuda")
        if given == "option":
            found = kg.kernel_graph(body, device="cuda", precision=precision)(x, w)
        elif given == "context":
            with kg.precision(precision):
                found = call(x, w)
        else:
            found = call(x, w)
        return float((np.abs(np.asarray(found) - np.maximum(expected, 0)) / size).max())

    least, most = ERRORS[precision]
    for body in (lambda x, w: relu(x @ w), lambda x, w: relu(x @ w) * 1 + 0 * x[:, :1]):  # an epilogue, and a kernel
        assert least <= error(body) < most


@pytest.mark.parametrize("product", [*random_products(examples(60))], ids=str)
def test_random_products(product: RandomProduct) -> None:
    """None runs on the host, none is rounded more than its dtype asks."""
    x, w = product.arrays()
    call = kg.kernel_graph(product.body, device="cuda")
    found = np.asarray(call(x, w))
    assert found.dtype.name == product.result
    assert "runs on the host" not in call.explain(x, w, verbose=True)
    a, b = (side.view(v).astype("f8") for side, v in ((product.left, x), (product.right, w)))
    near(found, a @ b, np.abs(a) @ np.abs(b) * (1 + a.shape[-1] / 1024), product.result)
    assert np.asarray(call(x, w)).tobytes() == found.tobytes()


def test_a_slow_way_gives_way(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """A product whose usual way takes as long as many others' is done in another, and `explain` says so; what was found
    is kept on disk."""
    device = device_named("cuda")
    real, measured = device.blas.run, []

    def run(call: Any, addresses: Any, stream: int, way: Any = USUAL) -> bool:
        measured.append(way)
        for _ in range(1000 if way == USUAL else 0):
            real(call, addresses, stream, way)
        return bool(real(call, addresses, stream, way))

    x, w = numbers("float32", (4, 300, 900)), numbers("float32", (4, 900, 40))
    expected = x.astype("f8") @ w.astype("f8")
    with kg.override(cache_dir=tmp_path):
        for process in range(2):
            monkeypatch.setattr(device.blas, "_ways", {})
            monkeypatch.setattr(device.blas, "run", run)
            measured.clear()
            call = kg.kernel_graph(lambda x, w: x @ w, device="cuda")
            np.testing.assert_allclose(np.asarray(call(x, w)), expected, rtol=1e-4, atol=1e-3)
            assert "matmul: 300x900 @ 900x40 in float32, 4 times took" in call.explain(x, w)
            assert (USUAL in measured) == (process == 0)
            assert measured[-1] != USUAL


def test_a_slow_batch_gives_way(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """Equal products that are one call, measured, are several where that takes much less."""
    device = device_named("cuda")
    real = device.blas.run_batch

    def run_batch(*args: Any) -> None:
        for _ in range(1000):
            real(*args)

    arrays = [numbers("float32", (64, 80)) for _ in range(5)]
    with kg.override(cache_dir=tmp_path):
        for slow in (False, True):
            monkeypatch.setattr(device.blas, "_ways", {})
            monkeypatch.setattr(device.blas, "run_batch", run_batch if slow else real)
            monkeypatch.setattr(product_ways, "_cache", DiskCache(f"products{slow}"))
            call = kg.kernel_graph(lambda *given: [a @ a.T for a in given], device="cuda")
            for found, a in zip(call(*arrays), arrays, strict=True):
                np.testing.assert_allclose(np.asarray(found), a.astype("f8") @ a.T, rtol=1e-4, atol=1e-3)
            text = call.explain(*arrays, verbose=True)
            assert ("5 times took" in text and "; one by one it takes" in text) == slow
