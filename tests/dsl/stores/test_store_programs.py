"""Random programs of stores, alone and over ranks, beside a dict of arrays; what ranks agree on of updaters."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.dsl.stores import updaters
from kernelgraph.dsl.stores.updaters import StoreUpdater
from tests import store_programs
from tests.counts import examples
from tests.dsl.devices.test_ranks import error_of, on_ranks


@pytest.fixture(autouse=True)
def impatient() -> Iterator[None]:
    with kg.override(collective_timeout=30):
        yield


@pytest.mark.filterwarnings("ignore:.*runs in NumPy")
@pytest.mark.parametrize(
    ("kind", "ranks"),
    [("local", 1), ("device", 1), ("dist_sync", 1), ("dist_sync", 2), ("dist_sync", 3), ("dist_async", 1),
     ("dist_async", 2), ("dist_async", 3)],
)  # fmt: skip
def test_random_programs(kind: str, ranks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(examples(40)):
        monkeypatch.setattr(updaters, "ALONE_BYTES", 1000 * (seed % 2))
        store_programs.check(kind, seed, ranks)


RATE, RATES, STEP = 0.5, {"w": 0.5}, np.full(2, 0.5)


def by_global(key: Any, pushed: Any, stored: Any) -> None:
    stored -= RATE * pushed


def by_dict(key: Any, pushed: Any, stored: Any) -> None:
    stored -= RATES[key] * pushed


def by_array(key: Any, pushed: Any, stored: Any) -> None:
    stored -= STEP * pushed


def by_default(key: Any, pushed: Any, stored: Any, rate: float = 0.5) -> None:
    stored -= rate * pushed


def by_closure(rate: Any) -> Any:
    def update(key: Any, pushed: Any, stored: Any) -> None:
        stored -= rate * pushed

    return update


def with_rate(key: Any, pushed: Any, stored: Any, *, rate: float) -> None:
    stored -= rate * pushed


class Descent:
    def __init__(self, rate: float) -> None:
        self.rate = rate

    def __call__(self, key: Any, pushed: Any, stored: Any) -> None:
        stored -= self.rate * pushed

    def method(self, key: Any, pushed: Any, stored: Any) -> None:
        stored -= self.rate * pushed


def in_numpy(rate: float) -> Any:
    def update(key: Any, pushed: Any, stored: Any) -> None:
        stored -= rate * np.unique(pushed)[0]

    return update


def named_differently(key: Any, given: Any, value: Any) -> None:
    value[...] = value - given * 0.5


def with_state(key: Any, pushed: Any, stored: Any, state: Any) -> None:
    stored -= 0.5 * pushed


# those of a group mean the same, for arrays of two float64
GROUPS: tuple[tuple[Callable[[], tuple[Any, int]], ...], ...] = (
    (
        lambda: (by_global, 0),
        lambda: (by_dict, 0),
        lambda: (by_default, 0),
        lambda: (by_closure(0.5), 0),
        lambda: (functools.partial(with_rate, rate=0.5), 0),
        lambda: (Descent(0.5), 0),
        lambda: (Descent(0.5).method, 0),
        lambda: (kg.kernel_graph(by_global), 0),
    ),
    (lambda: (by_closure(0.25), 0), lambda: (functools.partial(by_default, rate=0.25), 0), lambda: (Descent(0.25), 0)),
    (lambda: (by_array, 0), lambda: (by_closure(np.full(2, 0.5)), 0)),
    (lambda: (by_closure(np.array([0.5, 0.25])), 0),),
    (lambda: (in_numpy(0.5), 0), lambda: (in_numpy(0.5), 0)),
    (lambda: (in_numpy(0.25), 0),),
    (lambda: (named_differently, 0),),
    (lambda: (with_state, 1),),
)


@pytest.mark.filterwarnings("ignore:.*runs in NumPy")
@pytest.mark.parametrize("kind", ["dist_sync", "dist_async"])
def test_ranks_agree_on_what_updaters_compute(kind: str) -> None:
    """Whatever they are called and wherever their numbers come from."""
    makers = [(number, make) for number, group in enumerate(GROUPS) for make in group]

    def run() -> Any:
        store, found = kg.KVStore(kind), []
        store.init("w", np.full(2, 8.0))
        for i, (number, make) in enumerate(makers):
            for j in (i, (i + 1) % len(makers), (5 * i + 3) % len(makers)):
                other, make_other = makers[j]
                function, states = (make_other if store.rank else make)()
                before = store.pull("w").tolist()
                error = error_of(lambda f=function, n=states: (store.set_updater(f, n), store.push("w", np.ones(2))))
                error = error or error_of(lambda: store.pull("w"))
                store.barrier()
                after = store.pull("w").tolist()
                store.barrier()
                found.append((number == other, error, after == before, (i, j)))
        return found

    for found in on_ranks(2, run):
        for alike, error, kept, which in found:
            assert isinstance(error, kg.PlanError | None) and (error is None) == alike, (which, error)
            assert kept == (not alike), which


@pytest.mark.parametrize("kind", ["dist_sync", "dist_async"])
def test_ranks_agree_on_updaters_that_change(kind: str) -> None:
    """What one reads from outside is another number at a later push, or barrier."""

    def run() -> Any:
        rate = [0.5]
        store = kg.KVStore(kind)
        store.init("w", np.full(2, 8.0))
        store.set_updater(lambda key, pushed, stored: stored.__isub__(rate[0] * pushed))
        store.push("w", np.ones(2))
        store.barrier()
        first = store.pull("w").tolist()
        store.barrier()
        rate[0] += store.rank
        if kind == "dist_async":
            return first, error_of(store.barrier)
        store.push("w", np.ones(2))
        return first, error_of(lambda: store.pull("w"))

    for first, error in on_ranks(2, run):
        assert first == [7.0, 7.0] and isinstance(error, kg.PlanError), error
        assert "<lambda> (test_store_programs.py:" in str(error)


def test_one_compiled_updater_serves_all_keys_of_a_shape() -> None:
    """But for one that reads the key."""
    seen: list[Any] = []

    def noted(key: Any, pushed: Any, stored: Any) -> None:
        stored -= pushed

    def noted_key(key: Any, pushed: Any, stored: Any) -> None:
        stored -= pushed * (2 if key == "b" else 1)

    for function, count in ((noted, 2), (noted_key, 5)):
        store = kg.KVStore()
        store.set_updater(function)
        for key, shape in (("a", 2), ("b", 2), (3, 2), ("d", 3), ("e", 3)):
            store.init(key, np.zeros(shape))
            store.push(key, np.ones(shape))
        assert store.pull("b").tolist() == [-count // 2 if count == 2 else -2] * 2
        made = store._updater
        assert isinstance(made, StoreUpdater) and len(made._compiled) == count
    assert not seen


def test_servers_that_all_ranks_have_let_go_of_end() -> None:
    def run() -> Any:
        for _ in range(3):
            store = kg.KVStore("dist_async")
            store.set_updater(by_global)
            store.init("w", np.ones(2))
            store.push("w", np.ones(2))
            store.barrier()
            value = store.pull("w").tolist()
            del store
        kg.distributed.barrier()
        return value

    before = {t for t in threading.enumerate() if t.name.startswith("server of rank")}
    assert on_ranks(2, run) == [[0.0, 0.0]] * 2
    left = [t for t in threading.enumerate() if t.name.startswith("server of rank") and t not in before]
    for thread in left:
        thread.join(20)
    assert not any(thread.is_alive() for thread in left)


@pytest.mark.parametrize("kind", ["dist_async", "dist_sync"])
def test_updates_that_fail_leave_all_as_it_was_and_are_told_once(kind: str) -> None:
    def refuse(key: Any, pushed: Any, stored: Any) -> None:
        stored += pushed
        if pushed.sum() > 3:
            raise ValueError("too much")

    def run() -> Any:
        store = kg.KVStore(kind)
        keys = [*"abcdef"]  # on both servers
        store.init(keys, [np.full(2, 5.0)] * 6)
        store.set_updater(refuse)
        errors = []
        for key in keys:
            if store.rank == 0 or kind == "dist_sync":
                errors.append(
                    error_of(lambda key=key: (store.push(key, np.full(2, 9.0)), kind[5] == "s" and store.pull(key)))
                )
        told = error_of(store.barrier)
        again = error_of(store.barrier)
        values = [x.tolist() for x in store.pull(keys)]
        store.barrier()
        return errors, told, again, values

    for errors, told, again, values in on_ranks(2, run):
        assert again is None and values == [[5.0, 5.0]] * 6
        if kind == "dist_sync":
            assert all("too much" in str(error) for error in errors) and told is None
        else:
            assert "too much" in str(told) and "push of" in str(told)
