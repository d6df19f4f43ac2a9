"""`kg.DataParallel` and `kg.KVStore`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.runtime.program.dag import members_of_bitmask, transitive_predecessors_in_dag
from kernelgraph.runtime.program.plan import Launch, Plan, Wait, is_device_copy
from kernelgraph.runtime.program.program import task_dependences_of_program
from tests import plan_parts

RNG = np.random.default_rng(1)
X, Y = RNG.random((16, 5)), RNG.random((16, 2))
WEIGHTS = [RNG.random((5, 7)), RNG.random((7, 2))]


@pytest.fixture(autouse=True)
def four() -> Iterator[None]:
    with kg.override(cpu_devices=4, verify=True):
        yield


def loss(weights: Any, x: Any, y: Any) -> Any:
    return ((np.maximum(x @ weights[0], 0) @ weights[1] - y) ** 2).mean()


def descend(weights: Any, gradients: Any) -> Any:
    return [w - 0.05 * g for w, g in zip(weights, gradients, strict=True)]


@pytest.mark.parametrize("count", [1, 2, 4])
def test_training_on_several_devices_is_training_on_one(count: int) -> None:
    mesh = kg.Mesh([f"cpu:{i}" for i in range(count)])
    train = kg.DataParallel(loss, mesh, update=descend)

    @kg.kernel_graph(device="cpu")
    def alone(weights: Any, x: Any, y: Any) -> Any:
        value, gradients = kg.value_and_grad(loss)(weights, x, y)
        return descend(weights, gradients), value

    weights, own = train.replicate(WEIGHTS), WEIGHTS
    x, y = train.shard((X, Y))
    for _ in range(4):
        weights, value = train(weights, x, y)
        own, want = alone(own, X, Y)
        np.testing.assert_allclose(float(value), float(want), rtol=1e-12)
    for got, one in zip(weights, own, strict=True):
        np.testing.assert_allclose(got, one, rtol=1e-12)
        for part in got.parts:
            np.testing.assert_array_equal(part, got.parts[0])


@pytest.mark.parametrize("count", [2, 3, 4])
def test_batches_that_devices_cannot_share_equally(count: int) -> None:
    mesh = kg.Mesh([f"cpu:{i}" for i in range(count)])
    train = kg.DataParallel(loss, mesh, update=descend)
    forward = kg.DataParallel(lambda x: {"y": np.tanh(x @ WEIGHTS[0]), "sums": [x.sum(1)]}, mesh)
    for dtype in ("f8", "f4"):
        weights = [w.astype(dtype) for w in WEIGHTS]
        for rows in range(1, 10):
            x, y = X[:rows].astype(dtype), Y[:rows].astype(dtype)
            value, gradients = kg.value_and_grad(loss)(weights, x, y)
            new, mean = train(weights, x, y)
            for got, want in zip((*new, mean), (*descend(weights, gradients), value), strict=True):
                assert got.dtype == dtype
                np.testing.assert_allclose(got, want, rtol=1e-12 if dtype == "f8" else 1e-5)
            found = forward(x)
            np.testing.assert_allclose(found["y"], np.tanh(x @ WEIGHTS[0]), rtol=1e-6)
            np.testing.assert_allclose(found["sums"][0], x.sum(1), rtol=1e-6)
            named = kg.DataParallel(lambda x, y, scale=1: (x.sum(1) + y.sum(1)) * scale, mesh)(x, y=y, scale=3)
            np.testing.assert_allclose(named, (x.sum(1) + y.sum(1)) * 3, rtol=1e-5)


def test_results_that_are_no_rows_of_a_batch_are_not_cut() -> None:
    mesh = kg.Mesh(("cpu:0", "cpu:1"))
    for function in (lambda x: x.T, lambda x: np.repeat(x, 2, 0), lambda x: x.sum(0, keepdims=True)):
        with pytest.raises(kg.ShapeError, match="as many rows as its batch; from 4 rows came"):
            kg.DataParallel(function, mesh)(np.ones((3, 5)))


def test_gradients_are_exchanged_while_others_are_computed() -> None:
    """Each gradient is an output of its own of the first parts: its copy waits for it alone."""
    mesh = kg.Mesh(("cpu:0", "cpu:1"))
    plan = kg.DataParallel(loss, mesh, update=descend).plan(WEIGHTS, X, Y)
    _, first = plan_parts.parts(plan)[0]
    made = {v for t in first for v in plan_parts.written(plan, t)}
    copies = [s for s in plan.steps if isinstance(s, Launch) and is_device_copy(plan.program, plan.tasks[s.task])]
    sent = [s.task for s in copies if {*plan_parts.read(plan, s.task)} <= made]
    awaited = {s.event for s in plan.steps if isinstance(s, Wait) and s.stream == copies[0].stream}
    assert len({*(plan_parts.read(plan, t)[0] for t in sent)}) == 3 and len(awaited) >= 3


def deep_loss(weights: Any, x: Any) -> Any:
    for w in weights:
        x = np.maximum(x @ w, 0)
    return x.mean()


def deep_plan(mesh: kg.Mesh, layers: int = 5) -> Plan:
    train = kg.DataParallel(deep_loss, mesh, update=descend)
    return train.plan([kg.spec((256, 256), "f4")] * layers, kg.spec((512 * len(mesh), 256), "f4"))


def launched(plan: Plan) -> list[int]:
    return [step.task for step in plan.steps if isinstance(step, Launch)]


@pytest.mark.parametrize("where", ["four ranks", "four devices"])
def test_sums_lie_under_the_backward_pass(where: str) -> None:
    """Gradients leave from the last layer to the first, and before one is made no matmul is launched but those that it,
    or one that left before it, needs; so while one is on its way all layers before it are yet to come."""

    def on_ranks() -> Plan:
        with kg.device("cpu"):
            return deep_plan(kg.Mesh(4))

    if where == "four ranks":
        plan = kg.distributed.run_threads(4, on_ranks)[0]
        sent = [v for t in launched(plan) if plan_parts.is_between(plan, t) for v in plan_parts.read(plan, t)]
    else:
        plan = deep_plan(kg.Mesh([f"cpu:{i}" for i in range(4)]))
        copies = (t for t in launched(plan) if plan_parts.is_between(plan, t))
        sent = [*dict.fromkeys(v for t in copies for v in plan_parts.read(plan, t))]
    _, order = plan_parts.computing(plan)[0]
    writers = {v: t for t in order for v in plan_parts.written(plan, t)}
    above = transitive_predecessors_in_dag(task_dependences_of_program(plan.program))
    matmuls = {t for t in order if plan.tasks[t].name == "matmul"}
    needed, counts = set[int](), set[int]()
    for v in sent:
        if v in writers:
            task = writers[v]
            needed |= {task, *members_of_bitmask(above[task])}
            before = {*order[: order.index(task) + 1]} & matmuls
            assert before <= needed
            counts.add(len(before))
    assert counts - {0, 5} == {
        6,
        8,
        10,
        12,
        14,
    }  # of 5 forward, 5 for weights, 4 between


def test_updates_follow_the_order_of_the_sums() -> None:
    def on_ranks() -> Plan:
        with kg.device("cpu"):
            return deep_plan(kg.Mesh(2))

    plan = kg.distributed.run_threads(2, on_ranks)[0]
    sums = [t for t in launched(plan) if plan_parts.is_between(plan, t)]
    arrived = {v: i + 1 for i, t in enumerate(sums) for v in plan_parts.written(plan, t)}
    _, update = plan_parts.computing(plan)[-1]
    turns = [max(arrived.get(v, 0) for v in plan_parts.read(plan, t)) for t in update]
    assert turns == sorted(turns) and len({*turns}) == 6


def test_bad_training() -> None:
    mesh = kg.Mesh(("cpu:0", "cpu:1"))
    train = kg.DataParallel(loss, mesh, update=descend)
    with pytest.raises(kg.ShapeError, match="as many rows each, not 14 and 15"):
        train(WEIGHTS, X[:15], Y[:14])
    with pytest.raises(kg.ShapeError, match="as many rows each, not 15 and 16"):
        kg.DataParallel(lambda x, y: x @ y.T, mesh)(X, Y[:15])
    with pytest.raises(kg.ShapeError, match="as many rows each, not 2 and 4"):  # whose parts would broadcast
        train([np.ones(())] * 2, np.ones(4), np.ones(2))
    with pytest.raises(kg.ShapeError, match="as many rows each, not 8 and 16"):
        train(WEIGHTS, train.shard(X), Y[:8])
    for named in ({}, {"x": X}):
        with pytest.raises(kg.ArgumentsError, match="a batch"):
            train(WEIGHTS, **named)
    with pytest.raises(kg.OptionError, match="update=3"):
        kg.DataParallel(loss, mesh, update=3)  # type: ignore[arg-type]
    with pytest.raises(kg.OptionError, match=r"kg\.Mesh"):
        kg.DataParallel(loss, "cpu", update=descend)  # type: ignore[arg-type]


SHAPE = (4, 4)


def store_with(kind: str, *keys: Any) -> kg.KVStore:
    store = kg.KVStore(kind)
    for key in keys:
        store.init(key, kg.zeros(SHAPE, dtype=np.float32))
    return store


def ones(value: float = 1, device: str = "cpu") -> kg.Array:
    return kg.asarray(np.full(SHAPE, value, np.float32), device=device)


@pytest.mark.parametrize("kind", ["local", "device"])
def test_a_sum_over_devices_is_what_is_pulled(kind: str) -> None:
    store = store_with(kind, 3, "b")
    store.push(3, [ones(i + 1, f"cpu:{i}") for i in range(4)])
    outs = [ones(0, f"cpu:{i}") for i in range(4)]
    store.pull(3, out=outs)
    for i, out in enumerate(outs):
        np.testing.assert_array_equal(out, np.full(SHAPE, 10))
        assert out.device == ("cpu" if not i else f"cpu:{i}")
    np.testing.assert_array_equal(store.pull("b"), np.zeros(SHAPE))


@pytest.mark.parametrize("kind", ["local", "device"])
def test_lists_of_keys(kind: str) -> None:
    store = store_with(kind, 5, 7, 9)
    store.push([5, 7, 9], [ones(4)] * 3)
    found = [np.zeros(SHAPE, np.float32) for _ in range(3)]
    store.pull([5, 7, 9], found)
    np.testing.assert_array_equal(found, np.full((3, *SHAPE), 4))
    store.push([5, 7], [[ones(1), ones(2, "cpu:1")], ones(3)])
    for got, want in zip(store.pull([5, 7, 9]), (3, 3, 4), strict=True):
        np.testing.assert_array_equal(got, np.full(SHAPE, want))


@pytest.mark.parametrize("kind", ["local", "device"])
def test_an_updater(kind: str) -> None:
    store = store_with(kind, "a", 3)

    def add_twice(key: Any, pushed: Any, stored: Any) -> None:
        stored += pushed * (2 if key == "a" else 1)

    store.set_updater(add_twice)
    for turn in range(1, 4):
        store.push(["a", 3], [[ones(), ones(1, "cpu:1")], ones()])
        np.testing.assert_array_equal(store.pull("a"), np.full(SHAPE, 4 * turn))
        np.testing.assert_array_equal(store.pull(3), np.full(SHAPE, turn))


def test_what_is_pulled_is_not_what_is_stored() -> None:
    store = store_with("device", "a")
    store.push("a", ones(2))
    got = store.pull("a")
    got[...] = 9
    own = ones(0)
    store.pull("a", own)
    own[0] = 7
    np.testing.assert_array_equal(store.pull("a"), np.full(SHAPE, 2))


def test_pushpull_and_broadcast() -> None:
    store = kg.KVStore()
    outs = [ones(0, f"cpu:{i}") for i in range(3)]
    store.broadcast("w", ones(5), outs)
    np.testing.assert_array_equal(outs[2], np.full(SHAPE, 5))
    store.pushpull("w", outs)
    np.testing.assert_array_equal(outs[1], np.full(SHAPE, 15))
    assert (store.type, store.rank, store.num_workers) == ("local", 0, 1)


def test_bad_keys_and_values() -> None:
    store = store_with("local", "a")
    with pytest.raises(kg.OptionError, match="'local', 'device'"):
        kg.KVStore("nccl")
    with pytest.raises(kg.ArgumentsError, match="has a value already"):
        store.init("a", ones())
    with pytest.raises(kg.ArgumentsError, match=r"store.init\('b', value\)"):
        store.push("b", ones())
    with pytest.raises(kg.ArgumentsError, match="list of as many values"):
        store.push(["a", "b"], ones())
    with pytest.raises(kg.ArgumentsError, match="is no key"):
        store.init(1.5, ones())
    with pytest.raises(kg.ShapeError, match="key 'a' has shape"):
        store.push("a", np.zeros(3, np.float32))
    with pytest.raises(kg.DTypeError, match="key 'a' has dtype float32"):
        store.push("a", np.zeros(SHAPE))
    with pytest.raises(kg.ShapeError, match="does not fit"):
        store.pull("a", kg.zeros(3))
    with pytest.raises(kg.ArgumentsError, match="pulled into arrays"):
        store.pull("a", 3)
    for out in (np.zeros((4, 5), np.float32), np.zeros(SHAPE, np.int64)):  # NumPy would cut floats off
        with pytest.raises(
            kg.ShapeError, match=r"test_training.py:\d+: a float32 value of shape \(4, 4\) does not fit"
        ):
            store.pull("a", out=out)
    for states in (-1, "a", True):
        with pytest.raises(kg.OptionError, match=r"states=.*0 or more"):
            store.set_updater(lambda key, pushed, stored: None, states=states)  # type: ignore[arg-type]
    updaters: list[Any] = [3, lambda key, pushed: None, lambda key, pushed, stored, more, most: None]
    for updater in updaters:
        with pytest.raises(kg.ArgumentsError, match=r"test_training.py:\d+: set_updater takes .*, and of 1 states"):
            store.set_updater(updater, states=1)
    store.set_updater(lambda key, pushed, stored: stored - pushed)  # which would change nothing
    with pytest.raises(kg.ArgumentsError, match=r"test_training.py:\d+: an updater assigns to the stored array"):
        store.push("a", ones())


def test_axes_without_a_mesh() -> None:
    with pytest.raises(
        kg.OptionError, match=r"test_training.py:\d+: in_axes= and out_axes= are for functions with mesh="
    ):
        kg.kernel_graph(lambda x: x, in_axes=0)
