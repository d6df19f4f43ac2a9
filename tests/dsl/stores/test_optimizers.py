"""Optimizers of stores beside MXNet's formulas in NumPy, for each kind of store; their states in files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.dsl.stores import store_servers
from tests.dsl.devices.test_ranks import error_of, on_ranks

F32 = np.float32


@pytest.fixture(autouse=True)
def impatient() -> Iterator[None]:
    with kg.override(collective_timeout=30):
        yield


class Formula:
    """What MXNet's documentation says of an optimizer, as NumPy computes it; one key's states."""

    def __init__(self, name: str, value: Any, options: dict[str, Any]) -> None:
        self.name, self.options, self.t = name, options, 0
        self.dtype = value.dtype
        self.wide = value.astype(F32) if options.get("multi_precision") and value.dtype == np.float16 else value.copy()
        self.states = [np.zeros_like(self.wide) for _ in range(2)]

    def update(self, gradient: Any, rate: float, wd: float) -> None:
        w, dtype, options = self.wide, self.wide.dtype.type, self.options
        self.t += 1
        g = gradient.astype(w.dtype) * dtype(options.get("rescale_grad", 1.0))
        if options.get("clip_gradient") is not None:
            g = np.clip(g, -dtype(options["clip_gradient"]), dtype(options["clip_gradient"]))
        g = g + dtype(wd) * w
        first, second = self.states
        if self.name == "sgd":
            first[...] = dtype(options.get("momentum", 0.0)) * first - dtype(rate) * g
            w += first
        elif self.name == "adam":
            beta1, beta2 = options.get("beta1", 0.9), options.get("beta2", 0.999)
            first[...] = dtype(beta1) * first + dtype(1 - beta1) * g
            second[...] = dtype(beta2) * second + dtype(1 - beta2) * g * g
            rate = rate * np.sqrt(1 - beta2**self.t) / (1 - beta1**self.t)
            w -= dtype(rate) * first / (np.sqrt(second) + dtype(options.get("epsilon", 1e-8)))
        else:
            first += g * g
            w -= dtype(rate) * (g / (np.sqrt(first) + dtype(options.get("epsilon", 1e-6))))

    @property
    def value(self) -> Any:
        return self.wide.astype(self.dtype)


RATES = {"sgd": 0.1, "adam": 0.001, "adagrad": 0.01}
OPTIONS: list[tuple[str, dict[str, Any]]] = [
    ("sgd", {}),
    ("sgd", {"momentum": 0.9}),
    ("sgd", {"learning_rate": 0.3, "momentum": 0.5, "wd": 0.01, "rescale_grad": 0.25, "clip_gradient": 0.2}),
    ("adam", {}),
    ("adam", {"learning_rate": 0.1, "beta1": 0.8, "beta2": 0.9, "epsilon": 1e-4, "wd": 0.1, "clip_gradient": 1.0}),
    ("adagrad", {}),
    ("adagrad", {"learning_rate": 0.2, "epsilon": 1e-3, "wd": 0.05, "rescale_grad": 2.0}),
]


def gradient(turn: int, key: int, rank: int, shape: Any, dtype: Any) -> Any:
    return np.random.default_rng([turn, key, rank]).integers(-8, 9, shape).astype(dtype) / np.asarray(8, dtype)


def train(kind: str, name: str, options: dict[str, Any], dtype: Any, big: bool = False) -> float:
    """The largest difference of any key from the formula, after each of some pushes."""
    shapes, worst = ((4, 3), (40,) if big else (5,), ()), 0.0
    store = kg.KVStore(kind)
    rank, size = store.rank, store.num_workers
    optimizer = kg.optimizer.create(name, **options)
    optimizer.set_lr_mult({1: 0.5})
    optimizer.set_wd_mult({0: 0.0})
    store.set_optimizer(optimizer)
    first = [np.linspace(-1, 1, int(np.prod(s))).reshape(s).astype(dtype) for s in shapes]
    store.init([*range(3)], first)
    meant = [Formula(name, x, options) for x in first]
    for turn in range(5):
        rate = options.get("learning_rate", RATES[name]) * (0.5 if turn >= 3 else 1.0)
        optimizer.set_learning_rate(rate)
        keys = [0, 1, 2] if turn % 2 else [1, 0]
        given = [[gradient(turn, k, r, shapes[k], dtype) for r in range(size)] for k in keys]
        store.barrier()
        if kind != "dist_async" or rank == 0:
            store.push(keys, [each[rank] for each in given])
        store.barrier()
        for key, each in zip(keys, given, strict=True):
            pushed = sum(each) if kind != "dist_async" else each[0]
            wd = 0.0 if key == 0 else options.get("wd", 0.0)
            meant[key].update(np.asarray(pushed), rate * (0.5 if key == 1 else 1.0), wd)
        for found, want in zip(store.pull([*range(3)]), meant, strict=True):
            assert found.dtype == dtype
            worst = max(worst, float(np.abs(found.numpy().astype("f8") - want.value.astype("f8")).max()))
        store.barrier()
    return worst


@pytest.mark.parametrize(("name", "options"), OPTIONS)
def test_values_are_those_of_the_formula(name: str, options: dict[str, Any]) -> None:
    for kind in ("local", "device"):
        assert train(kind, name, options, np.float32) < 1e-5
        assert train(kind, name, options, np.float64) < 1e-12
        assert train(kind, name, {**options, "multi_precision": True}, np.float16) < 2e-3
        assert train(kind, name, {**options, "multi_precision": True}, np.float32) < 1e-5


@pytest.mark.parametrize("kind", ["dist_sync", "dist_async"])
@pytest.mark.parametrize(("name", "options"), OPTIONS[1::3])
def test_values_over_ranks(kind: str, name: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_servers, "BIG_ELEMENTS", 20)
    for size in (1, 3):
        assert max(on_ranks(size, lambda: train(kind, name, options, np.float32, True))) < 1e-5
    wide = {**options, "multi_precision": True}
    assert max(on_ranks(2, lambda: train(kind, name, wide, np.float16, True))) < 2e-3


def test_half_precision_keeps_what_a_small_step_changes() -> None:
    """1 - 1e-4 is 1 in float16: in steps of it a value moves if it is kept as float32, and else never."""

    def value(multi_precision: bool) -> float:
        store = kg.KVStore("local")
        store.set_optimizer(kg.optimizer.SGD(1e-4, multi_precision=multi_precision))
        store.init("w", np.ones(3, np.float16))
        for _ in range(100):
            store.push("w", np.ones(3, np.float16))
        return float(store.pull("w").numpy()[0])

    assert value(False) == 1.0
    assert abs(value(True) - 0.99) < 1e-3


def test_a_scheduler_gives_the_rate() -> None:
    class Halving:
        base_lr = 1.0

        def __call__(self, num_update: int) -> float:
            return float(self.base_lr * 0.5 ** (num_update - 1))

    scheduler = Halving()
    optimizer = kg.optimizer.SGD(0.5, lr_scheduler=scheduler)
    store = kg.KVStore("local")
    store.set_optimizer(optimizer)
    store.init("w", np.zeros(2))
    for _ in range(3):
        store.push("w", np.ones(2))
    np.testing.assert_allclose(store.pull("w").numpy(), -0.5 - 0.25 - 0.125)
    assert scheduler.base_lr == 0.5 and optimizer.learning_rate == 0.125
    assert "lr_scheduler" in str(error_of(lambda: optimizer.set_learning_rate(1.0)))


class Doubled(kg.optimizer.Optimizer):
    """One of a user's own."""

    def update(self, key: Any, pushed: Any, stored: Any, *rest: Any) -> None:
        rate, _, rescale = rest
        stored += 2 * rate * rescale * pushed


def test_an_optimizer_of_ones_own() -> None:
    store = kg.KVStore("local")
    store.set_optimizer(Doubled(learning_rate=0.25, rescale_grad=2.0))
    store.init("w", np.zeros(2))
    store.push("w", np.ones(2))
    np.testing.assert_array_equal(store.pull("w").numpy(), [1.0, 1.0])
    bare = kg.KVStore("local")
    bare.init("w", np.zeros(2))
    bare.set_optimizer(kg.optimizer.Optimizer())
    assert "Optimizer has no update" in str(error_of(lambda: bare.push("w", np.ones(2))))


@pytest.mark.parametrize(("before", "after"), [(1, 1), (3, 3), (3, 2), (2, 1)])
@pytest.mark.parametrize("kind", ["local", "dist_sync", "dist_async"])
def test_a_file_has_the_number_of_updates(
    kind: str, before: int, after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Adam that goes on from files goes on as if it had not stopped: with its third step, not its first."""
    if kind == "local" and (before, after) != (1, 1):
        return  # of ranks
    monkeypatch.setattr(store_servers, "BIG_ELEMENTS", 20)
    keys, values = ["w", 7, "never"], [np.ones(3), np.arange(30.0), np.ones(2)]

    def paths(size: int) -> list[str]:
        return [str(tmp_path / f"{r}.npz") for r in range(size)]

    def steps(store: kg.KVStore, turns: range) -> list[Any]:
        for turn in turns:
            store.barrier()
            if store.rank == 0 or kind == "dist_sync":
                share = store.num_workers if kind == "dist_sync" else 1
                store.push(keys[:2], [np.full(x.shape, turn + 1.0) / share for x in values[:2]])
            store.barrier()
        return [x.numpy() for x in store.pull(keys)]

    def made(first: list[Any]) -> kg.KVStore:
        store = kg.KVStore(kind)
        store.set_optimizer(kg.optimizer.Adam(0.1))
        store.init(keys, first)
        return store

    def save() -> Any:
        store = made(values)
        half = steps(store, range(2))
        store.save_optimizer_states(paths(before)[store.rank])
        store.barrier()
        return half, steps(store, range(2, 4))

    def load() -> Any:
        store = made(half)
        store.load_optimizer_states(paths(before) if before != after else paths(before)[store.rank])
        return steps(store, range(2, 4))

    half, whole = on_ranks(before, save)[0]
    for found in on_ranks(after, load):
        for got, want in zip(found, whole, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-9)
        assert not np.allclose(found[0], half[0]) and np.array_equal(found[2], half[2])


@pytest.mark.parametrize("kind", ["dist_sync", "dist_async"])
@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda: kg.optimizer.SGD(0.1), lambda: kg.optimizer.SGD(0.2)),
        (lambda: kg.optimizer.SGD(0.1, momentum=0.9), lambda: kg.optimizer.SGD(0.1, momentum=0.8)),
        (lambda: kg.optimizer.Adam(), lambda: kg.optimizer.AdaGrad(0.001)),
        (lambda: kg.optimizer.Adam(wd=0.1), lambda: kg.optimizer.Adam(wd=0.2)),
    ],
)
def test_ranks_with_other_optimizers_all_say_so(kind: str, one: Callable[[], Any], other: Callable[[], Any]) -> None:
    def run() -> Any:
        store = kg.KVStore(kind)
        store.init("w", np.ones(3))

        def use() -> None:
            store.set_optimizer(one() if store.rank else other())
            store.push("w", np.ones(3))
            store.pull("w").numpy()

        error = error_of(use)
        if kind == "dist_async":  # which is told where it is set
            store.set_optimizer(one())
        return error, store.pull("w").tolist()

    for error, value in on_ranks(2, run):
        assert isinstance(error, kg.PlanError) and value == [1.0, 1.0, 1.0]


def test_5000_keys_are_one_program() -> None:
    store = kg.KVStore("local")
    store.set_optimizer(kg.optimizer.Adam())
    store.init([*range(5000)], [np.zeros(4)] * 5000)
    store.push([*range(5000)], [np.ones(4)] * 5000)
    store.push([*range(5000)], [np.ones(4)] * 5000)
    assert store._updater is not None and len(store._updater._compiled) == 1
    [compiled] = store._updater._compiled.values()
    assert compiled.why().count("traced") <= 1, compiled.why()


@pytest.mark.parametrize(
    "call",
    [
        lambda o, store: o.create("rmsprop"),
        lambda o, store: o.create(3),
        lambda o, store: o.SGD("fast"),
        lambda o, store: o.SGD(momentum=None),
        lambda o, store: o.Adam(lr_scheduler=0.1),
        lambda o, store: o.SGD().set_lr_mult({"w": "x"}),
        lambda o, store: store.set_optimizer(lambda key, pushed, stored: None),
        lambda o, store: store.set_optimizer(o.SGD),
    ],
)
def test_what_is_no_optimizer(call: Callable[[Any, Any], Any]) -> None:
    assert isinstance(error_of(lambda: call(kg.optimizer, kg.KVStore("local"))), kg.UserError)
