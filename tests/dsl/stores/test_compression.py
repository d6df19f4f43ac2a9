"""Compressed gradients and row-sparse pulls of stores, beside NumPy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.dsl.stores import store_servers
from kernelgraph.dsl.stores.compression import GradientCompression
from tests.dsl.devices.test_ranks import error_of, on_ranks


@pytest.fixture(autouse=True)
def impatient() -> Iterator[None]:
    with kg.override(collective_timeout=30):
        yield


def quantized(x: Any, kind: str, threshold: float) -> Any:
    """MXNet's meaning of a compressed array."""
    t = x.dtype.type(threshold)
    if kind == "1bit":
        return np.where(x > t, x.dtype.type(1), x.dtype.type(-1))
    return np.where(x >= t, t, np.where(x <= -t, -t, x.dtype.type(0)))


TYPES = [("2bit", 0.5), ("2bit", 0.25), ("1bit", 0.0), ("1bit", 0.5)]


@pytest.mark.parametrize(("kind", "threshold"), TYPES)
@pytest.mark.parametrize("count", [0, 1, 3, 4, 7, 8, 31, 1000])
def test_codes_are_those_of_mxnet(kind: str, threshold: float, count: int) -> None:
    """Bit by bit, as `quantize_2bit` of MXNet writes them."""
    x = np.random.default_rng(count).standard_normal(count).astype("f4")
    packed, left = GradientCompression(kind, threshold).compress(kg.asarray(x, device="cpu"), None)
    bits = {"1bit": 1, "2bit": 2}[kind]
    wanted = np.zeros(-(-count * bits // 8), np.uint8)
    for i, value in enumerate(x):
        if kind == "1bit":
            code = int(value > threshold)
        else:
            code = 3 if value >= threshold else 2 if value <= -threshold else 0
        wanted[i * bits // 8] |= code << (8 - bits - i * bits % 8)
    np.testing.assert_array_equal(packed.numpy(), wanted)
    np.testing.assert_array_equal(left.numpy(), x - quantized(x, kind, threshold))


def push_compressed(kind: str, type: str, threshold: float, dtype: Any) -> None:
    store = kg.KVStore(kind)
    store.set_gradient_compression({"type": type, "threshold": threshold})
    shapes = ((7, 5), (40,), ())
    store.set_updater(lambda key, pushed, stored: stored.__iadd__(2 * pushed))
    store.init([*range(3)], [np.full(s, 0.3, dtype) for s in shapes])
    for found in store.pull([*range(3)]):
        assert (found.numpy() == np.asarray(0.3, dtype)).all()  # what `init` is given is whole
    store.barrier()  # before another rank pushes to a server
    many = store.num_workers if kind.startswith("dist") else 2
    left = [[np.zeros(s, dtype) for s in shapes] for _ in range(many)]
    wanted = [np.full(s, 0.3, dtype) for s in shapes]
    for turn in range(4):
        given = [[np.random.default_rng([turn, r, i]).integers(-9, 9, s).astype(dtype) / np.asarray(8, dtype)
                  for i, s in enumerate(shapes)] for r in range(many)]  # fmt: skip
        for i in range(3):
            total = np.zeros(shapes[i], dtype)
            for r in range(many):
                whole = given[r][i] + left[r][i]
                kept = quantized(whole, type, threshold)
                left[r][i] = whole - kept
                total = total + kept
            wanted[i] = wanted[i] + 2 * total
        if kind == "device":
            store.push([0, 1, 2], [[kg.asarray(given[1][i], device="cpu:1"), given[0][i]][::-1] for i in range(3)])
        elif turn % 2:
            for i in range(3):
                store.pushpull(i, given[store.rank][i], out=np.empty(shapes[i], dtype))
        else:
            store.push([0, 1, 2], given[store.rank])
        store.barrier()
        for found, want in zip(store.pull([*range(3)]), wanted, strict=True):
            np.testing.assert_allclose(found.numpy(), want, rtol=1e-5)
        store.barrier()


@pytest.mark.parametrize(("type", "threshold"), TYPES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_is_lost_is_added_to_the_next(type: str, threshold: float, dtype: Any) -> None:
    with kg.override(cpu_devices=2):
        push_compressed("device", type, threshold, dtype)


@pytest.mark.parametrize("kind", ["dist_sync", "dist_async"])
@pytest.mark.parametrize(("type", "threshold"), TYPES[::2])
def test_over_ranks(kind: str, type: str, threshold: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_servers, "BIG_ELEMENTS", 20)
    for size in (1, 2, 3):
        on_ranks(size, lambda: push_compressed(kind, type, threshold, np.float32))


def test_ranks_that_compress_otherwise_all_say_so() -> None:
    def run() -> Any:
        store = kg.KVStore("dist_sync")
        store.init("w", np.ones(3))
        store.set_gradient_compression({"type": "2bit", "threshold": 0.5 if store.rank else 0.25})
        store.push("w", np.ones(3))
        return error_of(lambda: store.pull("w").numpy())

    for error in on_ranks(2, run):
        assert isinstance(error, kg.PlanError) and "2bit of threshold 0.25" in str(error)


def test_a_refused_push_leaves_what_was_left() -> None:
    """Also of its keys that were compressed before the one that is wrong."""
    store = kg.KVStore("device")
    store.set_gradient_compression({"type": "2bit"})
    store.init(["a", "b"], [np.zeros(2), np.zeros(2)])
    store.set_updater(lambda key, pushed, stored: stored.__iadd__(pushed))
    store.push("a", np.full(2, 0.4))

    def refuse(key: Any, pushed: Any, stored: Any) -> None:
        raise ValueError("no")

    store.set_updater(refuse)
    assert "no" in str(error_of(lambda: store.push("a", np.full(2, 0.4))))
    store.set_updater(lambda key, pushed, stored: stored.__iadd__(pushed))
    assert error_of(lambda: store.push(["a", "b"], [np.full(2, 0.4), np.zeros(3)])) is not None
    store.push("a", np.full(2, 0.05))  # with 0.4 that is below the threshold
    np.testing.assert_array_equal(store.pull("a").numpy(), [0.0, 0.0])
    store.push("a", np.full(2, 0.1))
    np.testing.assert_array_equal(store.pull("a").numpy(), [0.5, 0.5])


@pytest.mark.parametrize(
    "params", [None, {}, {"type": "3bit"}, {"type": "2bit", "threshold": 0}, {"type": "2bit", "threshold": "x"},
               {"type": "2bit", "rate": 1}, {"threshold": 0.5}, "2bit"],
)  # fmt: skip
def test_what_is_no_compression(params: Any) -> None:
    assert isinstance(error_of(lambda: kg.KVStore("device").set_gradient_compression(params)), kg.OptionError)


def test_stores_and_values_that_are_not_compressed() -> None:
    local = error_of(lambda: kg.KVStore("local").set_gradient_compression({"type": "2bit"}))
    assert isinstance(local, kg.ArgumentsError) and "copies nothing" in str(local)
    store = kg.KVStore("device")
    store.set_gradient_compression({"type": "2bit"})
    store.init("n", np.zeros(3, np.int32))
    assert isinstance(error_of(lambda: store.push("n", np.ones(3, np.int32))), kg.DTypeError)


# rows


def pull_rows(kind: str) -> None:
    store, rng = kg.KVStore(kind), np.random.default_rng(3)
    table = {"w": rng.standard_normal((20, 6)), 3: rng.standard_normal((5, 2, 3)).astype("f4"), "v": np.arange(4.0)}
    store.set_updater(lambda key, pushed, stored: stored.__iadd__(pushed))
    store.init([*table], [*table.values()])
    store.barrier()
    for key, whole in table.items():
        for ids in ([], [0], [3, 1, 1], np.array([[1, 2], [0, 2]]), np.arange(len(whole)), np.array([2.0])):
            rows = np.unique(np.asarray(ids, np.int64))
            wanted = np.zeros_like(whole)
            wanted[rows] = whole[rows]
            found = store.row_sparse_pull(key, row_ids=ids)
            assert found.indices.tolist() == rows.tolist() and found.dtype == whole.dtype
            np.testing.assert_array_equal(found.numpy(), wanted)
            out = kg.RowSparse(np.ones((1, *whole.shape[1:]), whole.dtype), [1], whole.shape)
            assert store.row_sparse_pull(key, out=out, row_ids=ids) is None
            np.testing.assert_array_equal(np.asarray(out), wanted)
    several = [kg.RowSparse(np.zeros((0, 6)), [], (20, 6)) for _ in range(2)]
    store.row_sparse_pull("w", out=several, row_ids=[np.array([1]), np.array([2, 7])])
    assert [x.indices.tolist() for x in several] == [[1], [2, 7]]
    store.row_sparse_pull("w", out=several, row_ids=np.array([4]))
    assert [x.indices.tolist() for x in several] == [[4], [4]]
    store.row_sparse_pull(["w", "w"], out=several, row_ids=[[5], [6]])
    assert [x.indices.tolist() for x in several] == [[5], [6]]
    store.pull("w", out=several)  # MXNet's pull leaves row-sparse arrays alone
    assert [x.indices.tolist() for x in several] == [[5], [6]]
    dense = np.zeros((20, 6))
    store.pull(["w", "w"], out=[[dense, several[0]], several[1]], ignore_sparse=False)
    for x in (dense, *several):
        np.testing.assert_array_equal(np.asarray(x), table["w"])
    store.barrier()
    if kind != "dist_async" or store.rank == 0:
        store.push("w", kg.RowSparse(np.ones((2, 6)), [2, 19], (20, 6)))
    store.barrier()
    table["w"][[2, 19]] += store.num_workers if kind == "dist_sync" else 1
    np.testing.assert_array_equal(store.row_sparse_pull("w", row_ids=np.arange(20)).numpy(), table["w"])
    store.barrier()


@pytest.mark.parametrize("kind", ["local", "device", "dist_sync", "dist_async"])
def test_rows_are_pulled(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_servers, "BIG_ELEMENTS", 50)
    for size in (1,) if kind in ("local", "device") else (1, 2, 3):
        on_ranks(size, lambda: pull_rows(kind))


def test_rows_are_few_programs() -> None:
    """Of 64 numbers of rows."""
    from kernelgraph.dsl.stores.row_sparse import _gather_on_device

    store = kg.KVStore("local")
    store.init("w", np.ones((64, 2)))
    before = _gather_on_device("cpu").why().count("traced")
    for count in range(1, 65):
        assert store.row_sparse_pull("w", row_ids=np.arange(count)).data.shape == (count, 2)
    assert _gather_on_device("cpu").why().count("traced") - before <= 7


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (lambda store, out: store.row_sparse_pull("w", out=out, row_ids=[4]), kg.IndexingError),
        (lambda store, out: store.row_sparse_pull("w", out=out, row_ids=[-1]), kg.IndexingError),
        (lambda store, out: store.row_sparse_pull("w", out=out, row_ids=[0.5]), kg.IndexingError),
        (lambda store, out: store.row_sparse_pull("w", out=out), kg.ArgumentsError),
        (lambda store, out: store.row_sparse_pull("w", out=np.zeros((4, 3)), row_ids=[1]), kg.ArgumentsError),
        (lambda store, out: store.row_sparse_pull("w", out=[out] * 3, row_ids=[[1], [2]]), kg.ArgumentsError),
        (lambda store, out: store.row_sparse_pull("v", out=out, row_ids=[1]), kg.ArgumentsError),
        (lambda store, out: store.row_sparse_pull(["w", "w"], out=[out], row_ids=[[1], [2]]), kg.ArgumentsError),
        (lambda store, out: store.row_sparse_pull("0", row_ids=[0]), kg.ShapeError),
        (lambda store, out: store.pull("u", out=out, ignore_sparse=False), kg.ShapeError),
        (lambda store, out: kg.RowSparse(np.ones((2, 3)), [1], (4, 3)), kg.ShapeError),
        (lambda store, out: kg.RowSparse(np.ones((1, 3)), [9], (4, 3)), kg.IndexingError),
    ],
)
def test_rows_that_are_not_there(call: Callable[[Any, Any], Any], kind: type[Exception]) -> None:
    store = kg.KVStore("local")
    store.init(["w", "0", "u"], [np.ones((4, 3)), np.ones(()), np.ones((5, 3))])
    out = kg.RowSparse(np.zeros((1, 3)), [0], (4, 3))
    assert isinstance(error_of(lambda: call(store, out)), kind)
    assert out.indices.tolist() == [0] and not out.numpy().any()
