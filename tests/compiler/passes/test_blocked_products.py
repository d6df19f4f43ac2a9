"""Attention and its like in blocks: found however it is written, the same numbers, and no array of all scores."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kernelgraph as kg
from kernelgraph.compiler.graph.graph import Graph
from kernelgraph.compiler.graph.interpret import interpret_graph
from kernelgraph.compiler.passes import blocked_products
from kernelgraph.compiler.passes.blocked_products import compute_large_products_in_blocks
from kernelgraph.compiler.passes.picked_elements import compute_picked_elements
from kernelgraph.compiler.passes.simplify import simplify_graph
from kernelgraph.compiler.pipeline import compile_graph_to_program, run_decomposition_stage
from kernelgraph.runtime.program.program import control_flow_bodies
from tests.counts import examples

Array = np.ndarray[Any, Any]
N, M, D = 72, 80, 4  # queries, keys, what both have
BLOCK = 1 << 12  # bytes, so that there are several blocks and some rows that are left over


@pytest.fixture(autouse=True)
def _few_rows_in_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocked_products, "LEAST_ROWS", 5)


def arrays(*shapes: tuple[int, ...], seed: int = 0, dtype: Any = np.float64) -> list[Array]:
    rng = np.random.default_rng(seed)
    return [rng.normal(size=shape).astype(dtype) for shape in shapes]


def traced(function: Callable[..., Any], args: list[Array]) -> Graph:
    graph = kg.kernel_graph(function, device="cpu").graph(*args)
    return simplify_graph(run_decomposition_stage(graph, "cpu", None))


def largest_array(graph: Graph) -> int:
    """Elements of the largest array that is computed outside of loops and is no constant or index."""
    return max(
        n.type.size for n in graph.nodes if n.op in ("matmul", "exp", "loop", "multiply", "divide", "where", "sum")
    )


def is_in_blocks(function: Callable[..., Any], args: list[Array]) -> bool:
    """Whether the function is computed in blocks; if so, with the same results."""
    graph = traced(function, args)
    blocked = compute_large_products_in_blocks(graph, BLOCK)
    if blocked is graph:
        return False
    assert any(n.op == "loop" for n in blocked.nodes)
    assert largest_array(blocked) < largest_array(graph)
    for found, expected in zip(interpret_graph(blocked, args), interpret_graph(graph, args), strict=True):
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-11)
    return True


def weights(s: Any, axis: int = -1) -> Any:
    e = np.exp(s - s.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def _scores(q: Any, k: Any) -> Any:
    return q @ k.T / math.sqrt(D)


def _normalized_last(q: Any, k: Any, v: Any) -> Any:
    s = _scores(q, k)
    e = np.exp(s - s.max(1, keepdims=True))
    return (e @ v) / e.sum(1)[:, None]


def _log_softmax(q: Any, k: Any, v: Any) -> Any:
    s = _scores(q, k)
    s = s - np.max(s, -1, keepdims=True)
    return np.exp(s - np.log(np.sum(np.exp(s), -1, keepdims=True))) @ v


def _banded(q: Any, k: Any, v: Any) -> Any:
    away = np.arange(N)[:, None] - np.arange(M)
    return weights(np.where(abs(away) < 9, _scores(q, k), -np.inf)) @ v


def _alibi(q: Any, k: Any, v: Any) -> Any:
    return weights(_scores(q, k) - 0.1 * abs(np.arange(N)[:, None] - np.arange(M))) @ v


def _sink(q: Any, k: Any, v: Any) -> Any:
    s = _scores(q, k)
    most = np.maximum(s.max(-1, keepdims=True), 0)
    e = np.exp(s - most)
    return (e / (e.sum(-1, keepdims=True) + np.exp(-most))) @ v


def _masked_in_place(q: Any, k: Any, v: Any) -> Any:
    s = _scores(q, k)
    s[np.arange(N)[:, None] < np.arange(M)] = -1e9
    return weights(s) @ v


TABLE: dict[str, Callable[..., Any]] = {  # of q (N, D), k and v (M, D)
    "kg.nn": lambda q, k, v: kg.nn.attention(q, k, v),
    "kg.nn, causal": lambda q, k, v: kg.nn.attention(q, k, v, causal=True),
    "kg.nn, scaled": lambda q, k, v: kg.nn.attention(q, k, v, scale=0.3),
    "kg.nn.softmax": lambda q, k, v: kg.nn.softmax(_scores(q, k)) @ v,
    "maximum subtracted": lambda q, k, v: weights(_scores(q, k)) @ v,
    "maximum not subtracted": lambda q, k, v: (
        np.exp(_scores(q, k)) / np.exp(_scores(q, k)).sum(-1, keepdims=True) @ v
    ),
    "dot": lambda q, k, v: np.dot(weights(np.dot(q, k.T)), v),
    "matmul": lambda q, k, v: np.matmul(weights(np.matmul(q, np.transpose(k))), v),
    "einsum": lambda q, k, v: np.einsum("ij,jd->id", weights(np.einsum("id,jd->ij", q, k)), v),
    "tensordot": lambda q, k, v: np.tensordot(weights(np.tensordot(q, k, (1, 1))), v, 1),
    "inner": lambda q, k, v: weights(np.inner(q, k)) @ v,
    "queries scaled first": lambda q, k, v: weights((q * 0.5) @ k.T) @ v,
    "keys scaled first": lambda q, k, v: weights(q @ (k / 2).T) @ v,
    "normalized last": _normalized_last,
    "log softmax": _log_softmax,
    "keys by queries": lambda q, k, v: v.T @ weights(k @ q.T, 0),
    "result turned": lambda q, k, v: (weights(_scores(q, k)) @ v).T,
    "causal by where": lambda q, k, v: (
        weights(np.where(np.arange(N)[:, None] >= np.arange(M), _scores(q, k), -np.inf)) @ v
    ),
    "causal by tril": lambda q, k, v: weights(np.where(np.tril(np.ones((N, M), bool)), _scores(q, k), -np.inf)) @ v,
    "causal by triu, added": lambda q, k, v: weights(_scores(q, k) + np.triu(np.full((N, M), -1e9), 1)) @ v,
    "causal in place": _masked_in_place,
    "banded": _banded,
    "distances added": _alibi,
    "scores capped": lambda q, k, v: weights(5 * np.tanh(_scores(q, k) / 5)) @ v,
    "a sink": _sink,
    "sigmoid": lambda q, k, v: 1 / (1 + np.exp(-_scores(q, k))) @ v,
    "linear": lambda q, k, v: np.maximum(_scores(q, k), 0) @ v,
    "two values": lambda q, k, v: [weights(_scores(q, k)) @ v, weights(_scores(q, k)) @ (v * v)],
    "distances": lambda q, k, v: (
        weights(-((q * q).sum(1)[:, None] - 2 * q @ k.T + (k * k).sum(1))) @ v
    ),
    "entropy": lambda q, k, v: -(weights(_scores(q, k)) * np.log(weights(_scores(q, k)))).sum(-1),
    "logsumexp": lambda q, k, v: np.log(np.exp(_scores(q, k)).sum(-1)),
    "sums of weights": lambda q, k, v: weights(_scores(q, k)).sum(0),
    "weights of queries": lambda q, k, v: weights(_scores(q, k), 0) @ v,
    "products, rolled": lambda q, k, v: np.roll(np.exp(_scores(q, k)), 1, 0) @ v,
    "largest of columns": lambda q, k, v: _scores(q, k).max(0),
    "nearest keys": lambda q, k, v: np.argmax(_scores(q, k), -1),
}  # fmt: skip


@pytest.mark.parametrize("name", TABLE)
def test_spellings_that_match(name: str) -> None:
    assert is_in_blocks(TABLE[name], arrays((N, D), (M, D), (M, D)))


@pytest.mark.parametrize("name", [n for n in TABLE if n not in ("two values", "nearest keys")])
def test_their_gradients_match_too(name: str) -> None:
    """The scores of the gradient are computed again, in a second loop where cotangents come after all results."""

    def loss(*args: Any) -> Any:
        found = TABLE[name](*args)
        return np.sum(found * found) / (1 + np.sum(found))

    assert is_in_blocks(lambda *args: kg.grad(loss, (0, 1, 2))(*args), arrays((N, D), (M, D), (M, D)))


BATCHED: dict[str, Callable[..., Any]] = {  # of q, k, v (2, 3, N, D)
    "kg.nn": lambda q, k, v: kg.nn.attention(q, k, v, causal=True),
    "einsum": lambda q, k, v: np.einsum("bhij,bhjd->bhid", weights(np.einsum("bhid,bhjd->bhij", q, k)), v),
    "heads last": lambda q, k, v: np.einsum(
        "bhij,bhjd->bihd", weights(np.einsum("bhid,bhjd->bhij", q, k)), v
    ).reshape(2, N, -1),
    "grouped by repeat": lambda q, k, v: weights(
        q @ np.repeat(k[:, :1], 3, 1).swapaxes(-1, -2)
    ) @ np.repeat(v[:, :1], 3, 1),
    "grouped by broadcasting": lambda q, k, v: weights(q @ k[:, :1].swapaxes(-1, -2)) @ v[:, :1],
    "one head at a time": lambda q, k, v: np.stack(
        [weights(q[:, i] @ k[:, i].swapaxes(1, 2)) @ v[:, i] for i in range(3)], 1
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BATCHED)
def test_batches_and_heads(name: str) -> None:
    args = arrays(*[(2, 3, N, D)] * 3)
    assert is_in_blocks(BATCHED[name], args)
    assert is_in_blocks(lambda *a: kg.grad(lambda *b: (BATCHED[name](*b) ** 2).sum(), (0, 1, 2))(*a), args)


def test_masks_that_are_given() -> None:
    q, k, v, bias = arrays((3, N, D), (3, N, D), (3, N, D), (N, N))
    for mask in (bias, bias > 0, np.broadcast_to(bias, (3, N, N)).copy(), (bias[0] > 0)[None]):
        assert is_in_blocks(lambda q, k, v, m: kg.nn.attention(q, k, v, m), [q, k, v, mask])


LAST: dict[str, Callable[..., Any]] = {  # of x (N, K), w (K, M), labels y: a last layer, of which little is kept
    "kg.nn.cross_entropy": lambda x, w, y: kg.nn.cross_entropy(x @ w, y),
    "each loss": lambda x, w, y: kg.nn.cross_entropy(x @ w, y, reduction="none"),
    "logsumexp": lambda x, w, y: kg.nn.logsumexp(x @ w, -1),
    "largest": lambda x, w, y: (x @ w).max(-1),
    "classes": lambda x, w, y: np.argmax(x @ w, -1),
    "one class": lambda x, w, y: (np.exp(x @ w) / np.exp(x @ w).sum(-1, keepdims=True))[:, 7],
    "turned": lambda x, w, y: (w.T @ x.T).max(0),
}
WHOLE: dict[str, Callable[..., Any]] = {
    "the next layer": lambda x, w, y: np.maximum(x @ w, 0) @ w.T,
    "its gradient": lambda x, w, y: kg.grad(lambda x, w: kg.nn.cross_entropy(x @ w, y), (0, 1))(x, w),
    "probabilities": lambda x, w, y: kg.nn.softmax(x @ w),
    "compared with all": lambda x, w, y: (x @ w - (x @ w).max()).max(-1),
}
K = 16  # what is multiplied: too much for a product that is thin


@pytest.fixture
def _few_rows_in_a_wide_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocked_products, "WIDE_ROWS", 5)


@pytest.mark.usefixtures("_few_rows_in_a_wide_block")
@pytest.mark.parametrize("name", LAST)
def test_a_last_layer_of_which_little_is_kept(name: str) -> None:
    args = [*arrays((N, K), (K, M)), np.random.default_rng(0).integers(0, M, N)]
    graph = traced(LAST[name], args)
    picked = compute_picked_elements(graph)
    for form in (graph, picked):
        blocked = compute_large_products_in_blocks(form, BLOCK)
        assert any(n.op == "loop" for n in blocked.nodes)
        assert all(n.type.size < N * M for n in blocked.nodes)
        for found, expected in zip(interpret_graph(blocked, args), interpret_graph(graph, args), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-11)


@pytest.mark.usefixtures("_few_rows_in_a_wide_block")
@pytest.mark.parametrize("name", WHOLE)
def test_layers_that_are_not_computed_twice(name: str) -> None:
    graph = traced(WHOLE[name], [*arrays((N, K), (K, M)), np.zeros(N, int)])
    assert compute_large_products_in_blocks(graph, BLOCK) is graph


def test_16_bit_arrays_are_multiplied_as_they_are_in_blocks() -> None:
    """On a GPU, where the casts of NumPy's meaning stay out of the loop and of memory."""
    x, w = np.zeros((2048, 1024), ml_dtypes.bfloat16), np.zeros((1024, 1 << 16), ml_dtypes.bfloat16)
    graph = kg.kernel_graph(lambda x, w: kg.nn.logsumexp((x @ w).astype(np.float32)), device="cpu").graph(x, w)
    program = compile_graph_to_program(graph, "cuda")
    (loop,) = [t for t in program.tasks if t.name.startswith("loop")]
    (body,) = control_flow_bodies(loop)
    (product,) = [t for t in body.tasks if t.name == "matmul"]
    assert [r.dtype for r in product.reads] == ["bfloat16", "bfloat16"]
    assert max(b.nbytes for b in program.buffers) <= 1 << 27


def _returned(q: Any, k: Any, v: Any) -> Any:
    w = weights(_scores(q, k))
    return w @ v, w


ROWS = np.arange(N)[::-1].copy()
NEAR_MISSES: dict[str, Callable[..., Any]] = {  # of q and k (N, D), v (N, D)
    "weights returned": _returned,
    "scores returned": lambda q, k, v: (_scores(q, k), weights(_scores(q, k)) @ v),
    "exponentials returned": lambda q, k, v: np.exp(_scores(q, k)),
    "part of the weights returned": lambda q, k, v: np.tril(weights(_scores(q, k))),
    "weights over both axes": lambda q, k, v: weights(weights(_scores(q, k), 0), 1) @ v,
    "rows sorted": lambda q, k, v: np.sort(_scores(q, k), -1) @ v,
    "rows accumulated": lambda q, k, v: np.cumsum(_scores(q, k), -1) @ v,
    "median of rows": lambda q, k, v: np.median(_scores(q, k), -1),
    "order of rows": lambda q, k, v: np.argsort(_scores(q, k), -1)[:, 0],
    "rows turned around": lambda q, k, v: weights(_scores(q, k))[::-1] @ v,
    "rows shifted": lambda q, k, v: np.diff(weights(_scores(q, k)), axis=0) @ v,
    "rows rolled": lambda q, k, v: np.roll(weights(_scores(q, k)), 1, 0) @ v,
    "rows taken": lambda q, k, v: weights(_scores(q, k))[ROWS] @ v,
    "rows padded": lambda q, k, v: np.pad(weights(_scores(q, k)), ((1, 0), (0, 0))) @ v,
    "rows joined": lambda q, k, v: np.concatenate([weights(_scores(q, k))] * 2) @ v,
    "symmetric": lambda q, k, v: (_scores(q, k) + _scores(q, k).T) @ v,
    "squared": lambda q, k, v: _scores(q, k) @ _scores(q, k) @ v,
    "inverted": lambda q, k, v: np.linalg.inv(_scores(q, k)) @ v,
    "transformed": lambda q, k, v: np.fft.rfft(_scores(q, k)).real.sum(),
    "largest of columns": lambda q, k, v: weights(_scores(q, k)).max(0),
    "place of the largest of columns": lambda q, k, v: weights(_scores(q, k)).argmax(0),
    "products of columns": lambda q, k, v: weights(_scores(q, k)).prod(0),
    "any of columns": lambda q, k, v: (weights(_scores(q, k)) > 0.1).any(0),
    "made flat": lambda q, k, v: np.exp(_scores(q, k)).ravel()[::2].sum(),
    "half precision": lambda q, k, v: weights(_scores(q, k)).astype(np.float16).sum(0),
    "integers": lambda q, k, v: (weights(_scores(q, k)) > 0.1).sum(0),
    "no product": lambda q, k, v: weights(q[:, :1] * k[:, 0]) @ v,
    "thick": lambda q, k, v: weights(np.tile(q, (1, 9)) @ np.tile(k, (1, 9)).T) @ v,
}


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_near_misses(name: str) -> None:
    """What needs all scores at once, or has too few of them, stays as it is."""
    assert not is_in_blocks(NEAR_MISSES[name], arrays((N, D), (N, D), (N, D)))


@given(
    st.integers(0, 2**32 - 1),
    st.lists(st.integers(1, 3), max_size=2),
    st.integers(64, 100),
    st.integers(64, 100),
    st.integers(4, 7),
    st.sampled_from(["none", "causal", "bool", "float"]),
    st.booleans(),
)
@settings(max_examples=examples(30), deadline=None)
def test_random_attention(seed: int, batch: list[int], n: int, m: int, d: int, masked: str, grouped: bool) -> None:
    """Any shape: blocks that do not divide the rows, batches, one head of keys for all of queries'."""
    keys = [*batch[:-1], 1] if grouped and batch else batch
    q, k, v, bias = arrays((*batch, n, 4 * d)[-len(batch) - 2 :], (*keys, m, 4 * d), (*keys, m, 3), (n, m), seed=seed)
    q, k = q[..., :d].copy(), k[..., :d].copy()
    masks = {"none": [], "causal": [], "bool": [(bias > 0) | (np.arange(m) == 0)], "float": [bias]}[masked]

    def function(q: Any, k: Any, v: Any, *mask: Any) -> Any:
        return kg.nn.attention(q, k, v, *mask, causal=masked == "causal")

    args = [q, k, v, *masks]
    large = 8 * math.prod((*batch, n, m)) >= 4 * BLOCK
    assert is_in_blocks(function, args) == large
    assert is_in_blocks(lambda *a: kg.grad(lambda *b: (function(*b) ** 2).sum(), (0, 1, 2))(*a), args) == large


@pytest.mark.parametrize("device", ["cpu", "fake"])
def test_the_peak_of_a_plan_is_not_that_of_the_scores(device: str) -> None:
    x = kg.spec((2, 8, 8192, 64), "float32")
    scores = 4 * 16 * 8192 * 8192

    def attend(q: Any, k: Any, v: Any) -> Any:
        return kg.nn.attention(q, k, v, causal=True)

    plan = kg.kernel_graph(device=device)(attend).plan(x, x, x)
    assert plan.peak_bytes < scores / 8
    gradient = kg.kernel_graph(device=device)(lambda *a: kg.grad(lambda *b: attend(*b).sum(), (0, 1, 2))(*a))
    assert gradient.plan(x, x, x).peak_bytes < scores / 4


def test_blocks_on_the_cpu() -> None:
    """Compiled, at the size from which on there are blocks."""
    q, k, v = arrays(*[(2, 2048, 16)] * 3, dtype=np.float32)
    found = np.asarray(kg.kernel_graph(lambda q, k, v: kg.nn.attention(q, k, v, causal=True), device="cpu")(q, k, v))
    s = np.where(np.tri(2048, dtype=bool), q.astype(float) @ k.astype(float).swapaxes(1, 2) / 4, -np.inf)
    np.testing.assert_allclose(found, weights(s) @ v, atol=2e-5)
