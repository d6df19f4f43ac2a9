"""Random programs of `kg.KVStore`, on one process or on ranks, beside a store that is a dict of NumPy arrays.

After each step everything is compared that a caller holds: what he gave, what he pulled, what is stored. Then some of
it is written to, which nothing else may see. A step that raises changes nothing; what fails late a pull raises, once.

python -m tests.store_programs KIND RANKS SEEDS [FIRST]
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import kernelgraph as kg

KEYS: tuple[Any, ...] = (
    "w", "w.npy", "W", "a/b", "a\\b", "a", "", " ", ".", "..", "å", "a\u030a", "\ud800", "a\0b", "0", 0, 7, -7, 10**20,
    np.str_("v"), np.int64(3), "contents", "s0", "i0", "x" * 300,
)  # fmt: skip
SHAPES = ((3,), (2, 3), (), (0, 2), (1, 4), (5,))
DTYPES = ("f4", "f8", "f2", "i4", "c8")
DEVICES = ("cpu", "cpu:1", "cpu:2", "cpu:3")
FAULTS = ("shape", "dtype", "empty", "key", "object")


# updaters, which NumPy runs too


def subtract(key: Any, pushed: Any, stored: Any) -> None:
    stored -= pushed


def replace(key: Any, pushed: Any, stored: Any) -> None:
    stored[...] = pushed


def twice(key: Any, pushed: Any, stored: Any) -> None:
    stored -= pushed + pushed


def refuse_all(key: Any, pushed: Any, stored: Any) -> None:
    raise KeyError("all")


def nothing(key: Any, pushed: Any, stored: Any) -> None:
    pass


def square_of_pushed(key: Any, pushed: Any, stored: Any) -> None:
    pushed *= pushed
    stored += pushed


def by_key(key: Any, pushed: Any, stored: Any) -> None:
    stored += pushed if isinstance(key, str) else pushed + pushed


def refuse_some_keys(key: Any, pushed: Any, stored: Any) -> None:
    stored += pushed
    if key in ("w.npy", "a", 7):
        raise KeyError(key)


def refuse_some_values(key: Any, pushed: Any, stored: Any) -> None:
    stored += pushed
    if pushed.sum() > 6:
        raise ValueError("too much")


def refuse_late(key: Any, pushed: Any, stored: Any) -> None:
    stored += pushed
    if stored.size:
        most = np.abs(pushed).max()
        stored += (np.linalg.inv(np.eye(2) * np.minimum(most, 1)).sum() * 0).astype(stored.dtype)


def in_numpy(key: Any, pushed: Any, stored: Any) -> None:
    stored -= np.unique(pushed).size
    if pushed.size and pushed.max() > 3:
        raise ValueError("too much")


def count_pushes(key: Any, pushed: Any, stored: Any, count: Any) -> None:
    count += 1
    stored += pushed * count


def exchange(key: Any, pushed: Any, stored: Any, first: Any, second: Any) -> None:
    before = stored.copy()
    stored[...] = first
    first[...] = second
    second[...] = before + pushed


UPDATERS: tuple[tuple[Callable[..., None], int], ...] = (
    (subtract, 0), (replace, 0), (nothing, 0), (square_of_pushed, 0), (by_key, 0), (refuse_some_keys, 0),
    (refuse_some_values, 0), (refuse_late, 0), (in_numpy, 0), (count_pushes, 1), (exchange, 2),
)  # fmt: skip


class DictStore:
    """What a store means."""

    def __init__(self) -> None:
        self.values: dict[Any, Any] = {}
        self.states: dict[Any, list[Any]] = {}
        self.updater: Callable[..., None] = replace
        self.count = 0

    def push(self, sums: dict[Any, Any]) -> None:
        made = {}
        for key, pushed in sums.items():
            states = self.states.get(key) or [np.zeros_like(self.values[key]) for _ in range(self.count)]
            made[key] = [np.copy(x) for x in (self.values[key], *states)]
            with np.errstate(all="ignore"):
                self.updater(key, np.copy(pushed), *made[key])
        for key, (value, *states) in made.items():
            self.values[key] = value
            self.states[key] = states


class Held:
    """What the caller holds, and what it has to contain."""

    def __init__(self, thing: Any, values: Any, name: str) -> None:
        self.thing, self.values, self.name = thing, np.array(values), name

    def check(self) -> None:
        same(self.thing, self.values, self.name)

    def write(self, value: int) -> None:
        """If that can be done."""
        try:
            self.thing[...] = value
        except ValueError:  # read-only
            return
        self.values[...] = value


def same(got: Any, wanted: Any, name: str) -> None:
    array = np.asarray(got)
    assert array.dtype == np.asarray(wanted).dtype, (name, array.dtype)
    np.testing.assert_array_equal(array, wanted, err_msg=name)


class Program:
    """One random program on one rank. All ranks draw the same steps, each with its own values."""

    def __init__(self, kind: str, seed: int, folder: Path, ranks: int = 1) -> None:
        self.choose, self.kind, self.ranks, self.folder = random.Random(seed), kind, ranks, folder
        self.rank = 0 if kind in ("local", "device") else kg.distributed.rank()
        self.seed, self.step = seed, 0
        self.store, self.meant = kg.KVStore(kind), DictStore()
        self.held: list[Held] = []
        self.failed = False  # whether servers have refused a push
        self.log: list[str] = []
        if kind == "dist_async":
            self.set_updater()

    def run(self, steps: int) -> None:
        try:
            for self.step in range(steps):
                kinds = ["init", "push", "push", "push_fault", "pull", "pull_fault", "pushpull", "set_updater", "files"]
                if self.kind == "dist_sync" and self.ranks > 1:
                    kinds += ["disagree", "disagree"]
                step = "init" if not self.meant.values else self.choose.choice(kinds)
                self.log.append(step)
                getattr(self, step)()
                self.check(step)
        except Exception as error:
            error.add_note(f"{self.kind}, seed {self.seed}, rank {self.rank} of {self.ranks}: {', '.join(self.log)}")
            raise

    def check(self, step: str) -> None:
        """All that is held and stored; then some of it is written to."""
        if self.kind == "dist_async":
            self.barrier()
        for held in self.held:
            held.check()
        keys = [*self.meant.values]
        for key, value in zip(keys, self.store.pull(keys), strict=True):
            same(value, self.meant.values[key], f"{key!r} after {step}")
            self.held.append(Held(value, self.meant.values[key], f"pulled {key!r}"))
        if self.kind == "dist_async":
            self.store.barrier()
        self.choose.shuffle(self.held)
        for held in self.held[:4]:
            held.write(self.choose.randrange(5))
        del self.held[24:]
        for held in self.held:
            held.check()

    def barrier(self) -> None:
        """Of servers' updates that failed only a barrier tells, on each rank that does not know yet."""
        try:
            self.store.barrier()
        except kg.distributed.RankError as error:
            assert self.failed and "failed: " in str(error), error
        self.failed = False

    # what is given

    def numbers(self, key: Any, rank: int, part: int = 0) -> Any:
        """What a rank gives for a key in this step."""
        value = self.meant.values[key]
        rng = np.random.default_rng([self.seed, self.step, rank, part, len(self.log)])
        return rng.integers(0, 3, value.shape).astype(value.dtype)

    def given(self, values: Any) -> Any:
        """An array of these values in a random form, which is held."""
        shape = values.shape
        form = self.choose.choice(("numpy", "steps", "reversed", "fortran", "fixed", "kg", "part", "elsewhere", "late"))
        thing: Any = values.copy()
        if form == "steps" and shape:
            thing = np.repeat(values, 2, axis=0)[::2]
        elif form == "reversed" and shape:
            thing = values[::-1].copy()[::-1]
        elif form == "fortran":
            thing = values.copy(order="F")
        elif form == "fixed":
            thing.flags.writeable = False
        elif form == "kg":
            thing = kg.asarray(values, device="cpu")
        elif form == "part":
            thing = kg.asarray(np.stack([values, values]), device="cpu")[1]
        elif form == "elsewhere":
            thing = kg.asarray(values, device="cpu:1")
        elif form == "late":
            thing = COPIED(values)
        self.held.append(Held(thing, values, f"given {form}"))
        return thing

    def on_devices(self, key: Any, parts: list[int]) -> list[Any]:
        """An array of each part, each on a device of its own."""
        found = []
        for part, device in zip(parts, self.choose.sample(DEVICES, len(parts)), strict=True):
            values = self.numbers(key, self.rank, part)
            found.append(kg.asarray(values, device=device))
            self.held.append(Held(found[-1], values, f"given on {device}"))
        return found

    def to_push(self, keys: list[Any]) -> tuple[list[Any], dict[Any, Any]]:
        """A value for each key, and the sums by key over all ranks."""
        values, sums = [], dict[Any, Any]()
        for number, key in enumerate(keys):
            several = self.choose.randrange(4) == 0
            parts = [10 * number + i for i in range(2 if several else 1)]
            if several and self.kind in ("local", "device") and self.choose.randrange(2):
                own = self.on_devices(key, parts := [10 * number + i for i in range(self.choose.randint(2, 4))])
            else:
                own = [self.given(self.numbers(key, self.rank, part)) for part in parts]
            values.append(own if several else own[0])
            for rank in range(self.ranks):
                for part in parts:
                    sums[key] = sums.get(key, 0) + self.numbers(key, rank, part)
        return values, {key: np.asarray(value, self.meant.values[key].dtype) for key, value in sums.items()}

    def some_keys(self) -> list[Any]:
        return self.choose.choices([*self.meant.values], k=self.choose.randint(1, 4))

    def targets(self, key: Any) -> tuple[Any, list[Held]]:
        """Arrays that a key may be pulled into."""
        value = self.meant.values[key]
        empty = np.full(value.shape, 9, value.dtype)
        form = self.choose.choice(
            ("numpy", "steps", "reversed", "fortran", "kg", "elsewhere", "late", "several", "mesh")
        )
        things: list[Any] = [empty.copy()]
        if form == "steps" and value.shape:
            things = [np.repeat(empty, 2, axis=0)[::2]]
        elif form == "reversed" and value.shape:
            things = [empty.copy()[::-1]]
        elif form == "fortran":
            things = [empty.copy(order="F")]
        elif form in ("kg", "elsewhere"):
            things = [kg.asarray(empty, device="cpu" if form == "kg" else "cpu:1")]
        elif form == "late":
            things = [COPIED(empty)]
        elif form == "several":
            things = [empty.copy(), kg.asarray(empty, device="cpu"), empty.copy()]
        elif form == "mesh" and self.kind in ("local", "device"):
            spread = kg.replicate(empty, kg.Mesh(("cpu:0", "cpu:1")))
            return spread, [Held(part, empty, "target on a mesh") for part in spread.parts]
        held = [Held(thing, empty, f"target {form}") for thing in things]
        return (things if form == "several" else things[0]), held

    def bad_targets(self, key: Any) -> Any:
        value = self.meant.values[key]
        empty = np.full(value.shape, 9, value.dtype)
        fixed = empty.copy()
        fixed.flags.writeable = False
        base = kg.asarray(np.stack([empty, empty]), device="cpu")
        self.held += [Held(fixed, fixed, "read-only target"), Held(base, np.stack([empty, empty]), "base of a target")]
        forms = [
            fixed, [empty, fixed], 3, "text", None, [None],
            np.full((*value.shape, 2), 9, value.dtype), np.zeros(value.shape, "f8" if value.dtype != "f8" else "f4"),
            kg.zeros((7, 7)), empty.tolist(), np.ma.masked_array(empty, False),
            np.broadcast_to(empty, (2, *empty.shape)),
        ]  # fmt: skip
        if value.shape and value.size:  # else a part is no view
            forms += [base[1], base[0], base[::-1][0], [kg.asarray(empty, device="cpu"), base[1]]]
        if value.size > 1:
            forms.append(np.lib.stride_tricks.as_strided(empty, value.shape, (0,) * value.ndim))
        return self.choose.choice(forms)

    # steps

    def init(self) -> None:
        left = [key for key in KEYS if key not in self.meant.values]
        keys = self.choose.sample(left, self.choose.randint(1, 4))
        bad = self.choose.choice(("", "", "known", "twice", "empty", "object"))
        values = []
        for number, _ in enumerate(keys):
            shape, dtype = self.choose.choice(SHAPES), self.choose.choice(DTYPES)
            rng = np.random.default_rng([self.seed, self.step, number])
            values.append(rng.integers(0, 4, shape).astype(dtype))
        given: list[Any] = [self.given(value) for value in values]
        if bad in ("known", "twice"):
            again = keys[0] if bad == "twice" or not self.meant.values else next(iter(self.meant.values))
            keys, given = [*keys, again], [*given, np.zeros(2)]
        elif bad:
            given[-1] = [] if bad == "empty" else np.array([{}])
        if bad:
            self.refused(lambda: self.store.init(keys, given), f"init {bad}")
            return
        self.store.init(keys, given) if len(keys) > 1 else self.store.init(keys[0], given[0])
        self.meant.values |= dict(zip(keys, values, strict=True))

    def push(self) -> None:
        self.updated(lambda keys, values: self.store.push(keys, values), [])

    def pushpull(self) -> None:
        keys = self.some_keys()
        found = [self.targets(key) for key in keys]
        outs, held = [out for out, _ in found], [each for _, each in found]
        if self.choose.randrange(3) == 0:
            outs[-1] = self.bad_targets(keys[-1])
            values, _ = self.to_push(keys)
            self.refused(lambda: self.store.pushpull(keys, values, out=outs), "pushpull into bad targets")
            self.held += [one for each in held[:-1] for one in each]
            return
        done = self.updated(lambda keys, values: self.store.pushpull(keys, values, out=outs[: len(keys)]), keys)
        if self.kind == "dist_async" and self.ranks > 1:  # others' pushes may be in it, or not
            return
        for key, each in zip(keys, held, strict=True):
            for one in each:
                one.values = self.meant.values[key].copy() if done else one.values
                self.held.append(one)

    def updated(self, push: Callable[[list[Any], list[Any]], None], keys: list[Any]) -> bool:
        """A push that only the updater may refuse; whether it has not."""
        keys = keys or self.some_keys()
        if self.kind == "dist_async" and self.ranks > 1 and self.meant.updater is refuse_some_keys:
            del keys[1:]  # of several each server updates its own
        values, sums = self.to_push(keys)
        try:
            self.meant.push(sums)
        except Exception as error:
            wanted: Exception | None = error
        else:
            wanted = None
        error = self.error_of(lambda: push(keys, values), keys)
        if self.kind == "dist_async" and self.ranks > 1:  # some have no part on this rank
            self.failed = wanted is not None
            return wanted is None
        assert (error is None) == (wanted is None), f"{keys} {self.meant.updater.__name__}: {error!r} for {wanted!r}"
        return error is None

    def error_of(self, call: Callable[[], Any], keys: list[Any]) -> Exception | None:
        """What a call raises, or a pull behind it, but not both."""
        found = None
        for each in (call, *[lambda key=key: self.store.pull(key) for key in dict.fromkeys(keys)]):
            try:
                each()
            except Exception as error:
                assert found is None, f"{found!r} is told again: {error!r}"
                found = error
        return found

    def push_fault(self) -> None:
        keys = self.some_keys()
        values, _ = self.to_push(keys)
        fault, place = self.choose.choice(FAULTS), self.choose.randrange(len(keys))
        value = self.meant.values[keys[place]]
        if fault == "key":
            keys[place] = self.choose.choice(("none", 1.5, None, True, ("w", 0)))
        else:
            values[place] = {
                "shape": np.zeros((*value.shape, 3), value.dtype), "dtype": np.zeros(value.shape, "u2"), "empty": [],
                "object": np.full(value.shape, None) if value.size else [],
            }[fault]  # fmt: skip
        self.refused(lambda: self.store.push(keys, values), f"push of another {fault}")

    def disagree(self) -> None:
        """One rank does otherwise than the others: all are told, and nothing has changed anywhere."""
        keys = [*dict.fromkeys(self.some_keys())]
        values, _ = self.to_push(keys)
        odd = self.rank == self.choose.randrange(self.ranks)
        how, missing = self.choose.choice(("shape", "key", "order", "fewer", "rate", "none", "raises")), 0
        others = [key for key in self.meant.values if key not in keys]
        self.log.append(how)
        updaters = how in ("rate", "none", "raises")
        if updaters and not any(self.meant.values[key].size for key in keys):  # of which all graphs are one
            return
        if updaters or self.meant.updater is not replace:  # one that raises nothing of its own
            self.meant.updater, self.meant.count, self.meant.states = subtract, 0, {}
            self.store.set_updater(subtract)
        if odd and how == "shape":
            values[-1], missing = np.zeros((9, 9)), len(keys)
        elif odd and how == "key":
            keys[-1:], values[-1:] = (
                ([others[0]], [np.zeros_like(self.meant.values[others[0]])]) if others else ([], [])
            )
            missing = 0 if others else 1
        elif odd and how in ("order", "fewer"):
            keys, values = (keys[::-1], values[::-1]) if how == "order" and len(keys) > 1 else (keys[1:], values[1:])
            missing = 0 if how == "order" and keys else 1
        elif odd and how in ("rate", "raises"):
            missing = 0 if how == "rate" else len(keys)
            self.store.set_updater(twice if how == "rate" else refuse_all)
        elif odd and how == "none":
            self.store.set_updater(lambda k, pushed, stored: None)
        errors = []
        barriers = [self.store.barrier for _ in range(missing)]  # the others are in sums
        pulls = [lambda key=key: self.store.pull(key) for key in self.meant.values]
        for call in (lambda: self.store.push(keys, values) if keys else None, *barriers, *pulls):
            try:
                call()
            except (kg.PlanError, kg.UserError, KeyError) as error:
                errors.append(error)
        assert any(isinstance(error, kg.PlanError) for error in errors), f"{how}: {errors}"
        if updaters:
            self.store.set_updater(subtract)

    def pull(self) -> None:
        keys = self.some_keys()
        found = [self.targets(key) for key in keys]
        self.store.pull(keys, out=[out for out, _ in found])
        for key, (_, held) in zip(keys, found, strict=True):
            for one in held:
                one.values = self.meant.values[key].copy()
                self.held.append(one)

    def pull_fault(self) -> None:
        keys = self.some_keys()
        found = [self.targets(key) for key in keys]
        outs = [out for out, _ in found]
        outs[-1] = self.bad_targets(keys[-1])
        self.held += [one for _, held in found[:-1] for one in held]
        self.refused(lambda: self.store.pull(keys, out=outs), f"pull into {outs[-1]!r}")

    def refused(self, call: Callable[[], Any], name: str) -> None:
        """At the line of this file."""
        try:
            call()
        except kg.UserError as error:
            assert "store_programs.py:" in str(error), error
        else:
            raise AssertionError(f"{name} is not refused")

    def set_updater(self) -> None:
        any_order = self.kind == "dist_async" and self.ranks > 1
        updaters = [pair for pair in UPDATERS if not any_order or pair[0] in (subtract, refuse_some_keys)]
        self.meant.updater, self.meant.count = self.choose.choice(updaters)
        self.log.append(self.meant.updater.__name__)
        self.meant.states = {}
        self.store.set_updater(self.meant.updater, states=self.meant.count)

    def files(self) -> None:
        """States are written and read, by this store and by a new one; a file that is cut off is refused."""
        path = self.folder / f"{self.rank}"
        if self.ranks > 1:
            return
        self.store.save_optimizer_states(str(path))
        new = kg.KVStore(self.kind)
        new.set_updater(self.meant.updater, states=self.meant.count)
        new.init([*self.meant.values], [*self.meant.values.values()])
        new.load_optimizer_states(str(path))
        whole = path.read_bytes()
        cut = self.folder / "cut"
        cut.write_bytes(whole[: self.choose.randrange(len(whole))])
        self.refused(lambda: new.load_optimizer_states(str(cut)), "a file that is cut off")
        self.store = new


COPIED = kg.kernel_graph(lambda x: x + 0, device="cpu")


def check(kind: str, seed: int, ranks: int = 1, steps: int = 12) -> None:
    with tempfile.TemporaryDirectory() as folder, kg.override(cpu_devices=4):

        def run() -> None:
            with kg.device("cpu"):
                Program(kind, seed, Path(folder), ranks).run(steps)

        if kind in ("local", "device"):
            run()
        else:
            kg.distributed.run_threads(ranks, run)


if __name__ == "__main__":
    kind, ranks, count, first = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int((*sys.argv[4:], 0)[0])
    wrong = 0
    for seed in range(first, first + count):
        try:
            check(kind, seed, ranks)
        except Exception as error:
            wrong += 1
            if "-v" in sys.argv:
                raise
            print(
                f"{type(error).__name__}: {str(error)[:700]}", *getattr(error, "__notes__", ()), sep="\n  ", flush=True
            )
    print(f"{count} programs, {wrong} wrong")
