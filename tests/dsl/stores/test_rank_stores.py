"""`kg.KVStore` over ranks: sums of all, servers that update at each push, states, and what is wrong."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.dsl.stores import store_servers
from tests.dsl.devices.test_ranks import error_of, on_ranks

SHAPE = (4, 3)
A, S = "dist_async", "dist_sync"


@pytest.fixture(autouse=True)
def impatient() -> Iterator[None]:
    with kg.override(collective_timeout=30):
        yield


def ones(value: float = 1, dtype: Any = np.float32) -> Any:
    return np.full(SHAPE, value, dtype)


def descend(key: Any, pushed: Any, stored: Any) -> None:
    stored -= 0.5 * pushed


@pytest.mark.parametrize("kind", ["dist_sync", "dist_async"])
def test_rank_0_gives_the_first_values(kind: str) -> None:
    def run() -> Any:
        store = kg.KVStore(kind)
        store.init([3, "b"], [ones(kg.distributed.rank() + 5), ones(kg.distributed.rank())])
        return [x.numpy() for x in store.pull([3, "b"])], (store.rank, store.num_workers, store.type)

    for rank, (values, shown) in enumerate(on_ranks(3, run)):
        np.testing.assert_array_equal(values, [ones(5), ones(0)])
        assert shown == (rank, 3, kind)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32"])
def test_a_sum_is_over_all_ranks_and_their_devices(dtype: str) -> None:
    def run() -> Any:
        store = kg.KVStore("dist_sync")
        store.init("w", ones(0, dtype))
        for _ in range(2):
            store.push("w", [ones(kg.distributed.rank() + 1, dtype), ones(1, dtype)])
        out = [ones(9, dtype), kg.asarray(ones(9, dtype), device="cpu")]
        store.pull("w", out=out)
        return out

    for got, array in on_ranks(4, run):
        np.testing.assert_array_equal(got, ones(14, dtype))
        np.testing.assert_array_equal(array, ones(14, dtype))
        assert got.dtype == array.dtype == dtype


def test_an_update_is_after_all_have_pushed() -> None:
    def run() -> Any:
        store = kg.KVStore("dist_sync")
        store.init("w", ones(100))
        store.set_updater(descend)
        values = []
        for turn in range(1, 4):
            store.push("w", ones(turn))
            values.append(float(store.pull("w").numpy()[0, 0]))
        return values

    assert on_ranks(4, run) == [[98.0, 94.0, 88.0]] * 4


@pytest.mark.parametrize("count", [5, 3000])
@pytest.mark.parametrize("dtype", ["float16", "float64", "int8", "bool"])
def test_pushpull_is_a_push_and_a_pull(dtype: str, count: int) -> None:
    """Whichever of them a rank calls, and whether it waits for the ranks at once or not."""

    def run() -> Any:
        rank, found = kg.distributed.rank(), []
        for updates in (False, True):
            store = kg.KVStore("dist_sync")
            store.init("w", np.zeros(count, dtype))
            if updates and dtype != "bool":
                store.set_updater(lambda key, pushed, stored: stored.__iadd__(pushed * 2))
            out, given = np.full(count, 9, dtype), np.full(count, rank + 1, dtype)
            for turn in range(4):
                if (turn + rank) % 2:
                    store.pushpull("w", given, out)
                else:
                    store.push("w", given)
                    store.pull("w", out=out)
                found.append(out.copy())
            store.pushpull("w", given)  # what is pushed is the place of what is pulled
            found.append(given)
        return found

    ranks = on_ranks(3, run)
    for turn, (first, *others) in enumerate(zip(*ranks, strict=True)):
        want = 6 * 2 * (turn - 4) if turn >= 5 and dtype != "bool" else 6
        np.testing.assert_array_equal(first, np.full(count, want).astype(dtype))
        for other in others:
            assert other.dtype == dtype and other.tobytes() == first.tobytes()


def test_a_pushpull_that_fails_changes_nothing_on_any_rank() -> None:
    def run() -> Any:
        store, out = kg.KVStore("dist_sync"), np.zeros(SHAPE)
        store.init(["a", "b"], [ones(dtype=np.float64)] * 2)
        key = "a" if kg.distributed.rank() else "b"
        told = error_of(lambda: store.pushpull(key, ones(dtype=np.float64), out))
        store.set_updater(lambda key, pushed, stored: stored.__iadd__(pushed[:2]))  # shapes that do not fit
        wrong = error_of(lambda: store.pushpull("a", ones(dtype=np.float64), out))
        return str(told), str(wrong), out.sum(), [float(x.numpy().sum()) for x in store.pull(["a", "b"])]

    for told, wrong, left, values in on_ranks(2, run):
        assert "ranks differ" in told and wrong and left == 0 and values == [12.0, 12.0]


def test_ranks_that_push_different_keys_all_say_so() -> None:
    """Also keys of one shape and dtype, whose sum nobody could tell from a right one."""

    def run() -> Any:
        store = kg.KVStore("dist_sync")
        store.init(["a", "b"], [ones(), ones()])
        store.push("ab"[kg.distributed.rank()], ones())
        return error_of(lambda: [x.numpy() for x in store.pull(["a", "b"])])

    for error in on_ranks(2, run):
        assert isinstance(error, kg.PlanError)
        assert "push of 'a' of float32[4, 3]" in str(error) and "push of 'b' of float32[4, 3]" in str(error)


@pytest.mark.parametrize("size", [1, 2, 4])
def test_each_push_is_an_update(size: int) -> None:
    """Of several ranks in any order, one after another; a rank sees its own at once, and after `barrier` all."""

    def run() -> Any:
        store = kg.KVStore("dist_async")
        keys: list[Any] = ["w", *range(6)]
        store.init(keys, [ones(1000.0)] * 7)
        store.set_updater(descend)
        store.barrier()
        for _ in range(5):
            store.push(keys, [ones(2)] * 7)
        own = [float(x.numpy().max()) for x in store.pull(keys)]
        store.barrier()
        out = ones(0)
        store.pull("w", out=out)
        return own, [x.numpy() for x in store.pull(keys)], out

    for own, values, out in on_ranks(size, run):
        assert max(own) <= 1000 - 5
        np.testing.assert_array_equal(values, [ones(1000 - 5 * size)] * 7)
        np.testing.assert_array_equal(out, ones(1000 - 5 * size))


def test_large_arrays_are_cut_over_all_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_servers, "BIG_ELEMENTS", 100)
    pieces = store_servers.pieces_of("w", 101, 3)
    assert [(p.server, p.start, p.stop) for p in pieces] == [(0, 0, 33), (1, 33, 67), (2, 67, 101)]
    values = np.arange(1001.0).reshape(13, 77)

    def run() -> Any:
        store = kg.KVStore("dist_async")
        store.init("w", values)
        store.set_updater(descend)
        store.barrier()
        store.pushpull("w", kg.asarray(values, device="cpu"), out=np.empty_like(values))
        store.barrier()
        return store.pull("w").numpy()

    for got in on_ranks(3, run):
        np.testing.assert_array_equal(got, values - 1.5 * values)


def momentum(key: Any, pushed: Any, stored: Any, speed: Any) -> None:
    speed *= 0.5
    speed += pushed
    stored -= speed


@pytest.mark.parametrize("kind", ["local", "dist_sync", "dist_async"])
def test_states_are_saved_and_loaded(kind: str, tmp_path: Path) -> None:
    """Training that goes on from a file goes on as if it had not stopped."""

    def train(store: kg.KVStore, start: Any, turns: int, load: bool) -> Any:
        path = str(tmp_path / f"{kg.distributed.rank()}.npz")
        store.set_updater(momentum, states=1)
        store.init(["w", 7], start)
        if load:
            store.load_optimizer_states(path)
        store.barrier()
        for _ in range(turns):
            store.push(["w", 7], [ones(2), ones(3)])
            store.barrier()
        store.save_optimizer_states(path)
        store.barrier()
        return [x.numpy() for x in store.pull(["w", 7])]

    def run() -> Any:
        start = [ones(10), ones(20)]
        whole = train(kg.KVStore(kind), start, 4, False)
        half = train(kg.KVStore(kind), start, 2, False)
        return whole, train(kg.KVStore(kind), half, 2, True)

    for whole, resumed in on_ranks(1, run):
        np.testing.assert_array_equal(whole, resumed)
    if kind != "local":
        for whole, resumed in on_ranks(2, run):
            np.testing.assert_array_equal(whole, resumed)


@pytest.mark.parametrize(("before", "after"), [(3, 2), (2, 4), (4, 1)])
@pytest.mark.parametrize("kinds", [(A, A), (A, S), (S, A)])
def test_states_are_read_by_another_number_of_ranks(
    before: int, after: int, kinds: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the other ranks had begun with them: of arrays that lie in pieces, too."""
    monkeypatch.setattr(store_servers, "BIG_ELEMENTS", 10)
    keys, shapes = ["w", "a/b", 7], [(4, 3), (2,), (5, 5)]
    paths = [str(tmp_path / f"{r}.npz") for r in range(before)]

    def train(store: kg.KVStore, turns: int, values: Any) -> Any:
        store.init(keys, values)
        store.barrier()
        for turn in range(turns):
            if store.rank == 0 or store.type == "dist_sync":  # one push, whatever the number of ranks
                scale = 1 / (store.num_workers if store.type == "dist_sync" else 1)
                store.push(keys, [np.arange(np.prod(s)).reshape(s) * scale * (turn + 1) for s in shapes])
            store.barrier()
        return [x.numpy() for x in store.pull(keys)]

    def save() -> Any:
        store = kg.KVStore(kinds[0])
        store.set_updater(momentum, states=1)
        values = train(store, 2, [np.ones(s) for s in shapes])
        store.save_optimizer_states(paths[store.rank])
        return values

    def load() -> Any:
        store = kg.KVStore(kinds[1])
        store.set_updater(momentum, states=1)
        store.init("other", np.ones(2))
        for key, value in zip(keys, values, strict=True):
            store.init(key, value)
        store.load_optimizer_states(paths)
        store.barrier()
        if store.rank == 0 or store.type == "dist_sync":
            scale = 1 / (store.num_workers if store.type == "dist_sync" else 1)
            store.push(keys, [np.ones(s) * scale for s in shapes])
        store.barrier()
        return [x.numpy() for x in store.pull(keys)]

    values = on_ranks(before, save)[0]
    wanted = []
    for shape, value in zip(shapes, values, strict=True):
        pushed = np.arange(np.prod(shape)).reshape(shape)
        speed = pushed * 0.5 + pushed * 2
        wanted.append(value - (speed * 0.5 + 1))
    for found in on_ranks(after, load):
        for got, want in zip(found, wanted, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-12)


def test_a_push_waits_for_its_values_in_the_background() -> None:
    def run() -> Any:
        store = kg.KVStore("dist_async")
        x = kg.asarray(np.eye(300), device="cpu")
        store.init("w", x)
        store.set_updater(descend)
        store.barrier()
        f = kg.kernel_graph(lambda x: x @ x @ x, device="cpu")
        for _ in range(3):
            store.push("w", f(x))
        own = store.pull("w").numpy()
        store.barrier()
        return own, store.pull("w").numpy()

    for own, after in on_ranks(2, run):
        assert own[0, 0] <= -0.5 and own[0, 1] == 0
        np.testing.assert_array_equal(after, np.eye(300) * (1 - 3))


def test_an_array_pushed_behind_one_that_is_waited_for_may_change() -> None:
    def run() -> Any:
        store = kg.KVStore("dist_async")
        store.set_updater(descend)
        store.init("w", ones(100))
        assert store._servers is not None
        there, given = threading.Event(), ones(4)

        def read() -> Any:
            there.wait()
            return {"w": ones(2)}

        store._servers.push_later(read)
        store.push("w", given)
        given[...] = 1000
        there.set()
        return store.pull("w").numpy()

    [after] = on_ranks(1, run)
    np.testing.assert_array_equal(after, ones(97))


def test_what_is_pushed_and_pulled_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_servers, "BIG_ELEMENTS", 100)
    shapes: list[Any] = [(4, 3), (), (7, 30)]

    def run() -> Any:
        store, size = kg.KVStore("dist_async"), kg.distributed.size()
        store.set_updater(descend)
        given, found = [np.full(s, 2.0) for s in shapes], [np.full(s, 0.0) for s in shapes]
        store.init([0, 1, 2], [np.full(s, 100.0) for s in shapes])
        for key in range(3):
            store.pushpull(key, given[key], out=found[key])
        store.pushpull([0, 1, 2], given, out=found)
        most = [float(x.max()) for x in found]
        store.barrier()
        for key in range(3):
            store.pushpull(key, given[key])  # what was pushed is the place of what is pulled
        store.barrier()
        out = store.pull([0, 1, 2])
        read_only = given[0].copy()
        read_only.flags.writeable = False
        assert "read-only" in str(error_of(lambda: store.pushpull(0, given[0], out=read_only)))
        return most, [float(x.max()) for x in given], [x.numpy() for x in out], size

    for most, own, values, size in on_ranks(3, run):
        assert max(most) <= 98 and max(own) <= 100 - 2 * size - 1
        for value, shape in zip(values, shapes, strict=True):
            np.testing.assert_array_equal(value, np.full(shape, 100.0 - 3 * size))


@pytest.mark.parametrize("kind", ["dist_sync", "dist_async"])
@pytest.mark.parametrize(
    ("keys", "shapes", "dtypes"), [("ab", (3, 3), "ff"), ("aa", (3, 5), "ff"), ("aa", (3, 3), "fd")]
)
def test_first_values_that_differ_in_key_shape_or_dtype(kind: str, keys: Any, shapes: Any, dtypes: Any) -> None:
    def run() -> Any:
        store, rank = kg.KVStore(kind), kg.distributed.rank()
        return error_of(lambda: store.init(keys[rank], np.ones(shapes[rank], dtypes[rank])))

    for error in on_ranks(2, run):
        assert isinstance(error, kg.PlanError) and f"init of '{keys[1]}'" in str(error)


def test_an_updater_on_one_rank_alone() -> None:
    def run() -> Any:
        store = kg.KVStore("dist_sync")
        store.init("w", ones())
        if kg.distributed.rank() == 0:
            store.set_updater(descend)
        store.push("w", ones())
        return error_of(lambda: store.pull("w").numpy())

    for error in on_ranks(2, run):
        assert isinstance(error, kg.PlanError) and "push of 'w' to descend" in str(error)


def test_updaters_see_values_in_their_shape() -> None:
    def rows(key: Any, pushed: Any, stored: Any) -> None:
        stored -= pushed.sum(axis=1, keepdims=True)

    def run() -> Any:
        store = kg.KVStore("dist_async")
        store.set_updater(rows)
        store.init("w", ones(100))
        store.push("w", np.arange(12, dtype=np.float32).reshape(SHAPE))
        store.barrier()
        return store.pull("w").numpy()

    for size in (1, 2):
        for found in on_ranks(size, run):
            wanted = ones(100) - size * np.arange(12).reshape(SHAPE).sum(axis=1, keepdims=True)
            np.testing.assert_array_equal(found, wanted)


def test_an_answer_on_its_way_is_of_one_update() -> None:
    """Which puts another array in the value's place."""

    def run() -> Any:
        store = kg.KVStore("dist_async")
        store.set_updater(descend)
        store.init("w", ones(100))
        assert store._servers is not None
        answer = store._servers._server.handle(0, "pull", {("w", 0): np.empty(0)})
        store.push("w", ones(2))
        return answer, store.pull("w").numpy()

    [(answer, after)] = on_ranks(1, run)
    np.testing.assert_array_equal(answer, ones(100))
    np.testing.assert_array_equal(after, ones(99))


def test_bad_stores() -> None:
    with pytest.raises(kg.ArgumentsError, match=r"kg\.distributed\.init\(\)"):
        kg.KVStore("dist_sync")
    with pytest.raises(kg.OptionError, match="'dist_sync', 'dist_async'"):
        kg.KVStore("dist")

    def run() -> Any:
        store = kg.KVStore("dist_async")
        store.init("w", ones())
        return [
            error_of(lambda: store.push("w", ones())),
            error_of(lambda: store.pushpull("w", ones())),
            error_of(lambda: store.push("v", ones())),
            error_of(lambda: store.pull("v")),
            error_of(lambda: (store.set_updater(descend), store.push("w", np.zeros(3)))),
        ]

    for errors in on_ranks(2, run):
        texts = [
            "needs set_updater",
            "needs set_updater",
            r"store.init('v', value)",
            r"store.init('v', value)",
            "has shape (4, 3)",
        ]
        for error, text in zip(errors, texts, strict=True):
            assert isinstance(error, kg.ArgumentsError | kg.ShapeError) and text in str(error), error


@pytest.mark.parametrize("kind", ["local", "dist_sync", "dist_async"])
def test_stores_are_given_what_is_none_of_theirs(kind: str, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no states")
    np.savez(tmp_path / "other.npz", a=ones())
    fixed = ones()
    fixed.flags.writeable = False

    def run() -> Any:
        store = kg.KVStore(kind)
        store.set_updater(descend)
        store.init("w", ones())
        errors = [
            error_of(lambda: store.init("v", [])),
            error_of(lambda: store.pull("w", out=fixed)),
            error_of(lambda: store.pull("w", out=[ones(), fixed])),
            error_of(lambda: store.load_optimizer_states(3)),
            error_of(lambda: store.load_optimizer_states(tmp_path / "text")),
            error_of(lambda: store.load_optimizer_states([str(tmp_path / "other.npz")])),
        ]
        store.push("w", ones())
        store.barrier()
        store.pull("w", out=(out := ones(7)))  # of what was refused no answer is on its way
        return errors, out

    texts = ["nothing is given for key 'v'", *["read-only"] * 2, "not 3", *["save_optimizer_states has written"] * 2]
    for errors, out in on_ranks(2, run):
        for error, text in zip(errors, texts, strict=True):
            assert isinstance(error, kg.ArgumentsError) and text in str(error), error
        assert out.max() < 1


def test_an_updater_that_fails_is_an_error_on_all_ranks() -> None:
    def broken(key: Any, pushed: Any, stored: Any) -> None:
        raise ZeroDivisionError("no learning rate")

    def run() -> Any:
        store = kg.KVStore("dist_async")
        store.init("w", ones())
        store.set_updater(broken)
        store.barrier()
        if kg.distributed.rank() == 1:
            store.push("w", ones())
        store.barrier()

    errors: list[BaseException] = []

    def note() -> None:
        try:
            run()
        except Exception as error:
            errors.append(error)
            raise

    with pytest.raises(Exception, match="no learning rate"):
        on_ranks(2, note)
    assert len(errors) == 2 and all("no learning rate" in str(error) for error in errors)


def test_a_barrier_that_a_rank_never_comes_to() -> None:
    def run() -> Any:
        store = kg.KVStore("dist_async")
        if kg.distributed.rank() == 1:
            raise ValueError("the disk is full")
        return error_of(store.barrier)

    with pytest.raises(ValueError, match="the disk is full"):
        on_ranks(3, run)
