"""Memory between calls: `python benchmarks/memory.py [--device cpu|cuda] [--minutes 8] [--soak]`.

Prints a row for each goal: a queued loop beside the same with a wait and beside NumPy, the time in which an operator
returns, what a queue reserves, and, on a GPU, how far the account is from the driver's figure and what is given back.

The soak reads the driver's figure, which is that of the whole card: nothing else may run on it, no tests either. It
ends with a line for each verdict, and fails if one is bad.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
import random
import statistics
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

import kernelgraph as kg
from kernelgraph.runtime.core.readable_text import byte_count_in_words as words

ROUNDS = 12
TURNS = 4  # parts of a loop, each of which is timed: what else the machine does then meets all loops alike


def seconds_in_turns(loops: Mapping[str, Callable[[], Any]]) -> dict[str, list[float]]:
    """The times of each loop, as many of each; they take turns."""
    times: dict[str, list[float]] = {name: [] for name in loops}
    for _ in range(TURNS * ROUNDS):
        for name, loop in loops.items():
            start = time.perf_counter()
            loop()
            times[name].append(time.perf_counter() - start)
    return times


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> str:
    """The fastest beside the fastest, and the median of pairs."""
    pairs = [one / other for one, other in zip(ours, theirs, strict=True)]
    return f"{min(ours) / min(theirs):.2f} (pairs {statistics.median(pairs):.2f})"


def step(x: Any) -> Any:
    return x * 0.99 + 0.01


def print_loops(device: str, nbytes: int) -> None:
    values = np.linspace(0.0, 1.0, nbytes // 8)
    x, f = kg.asarray(values, device=device), kg.kernel_graph(device=device)(step)
    count = max(20, (1 << 31) // nbytes // 2) // TURNS

    def turn(call: Callable[[Any], Any], start: Any) -> Any:
        for _ in range(count):
            start = call(start)
        return start

    found = seconds_in_turns(
        {
            "queued": lambda: turn(f, x).wait(),
            "waiting": lambda: turn(lambda a: f(a).wait(), x),
            "operators": lambda: turn(step, x).wait(),
            "numpy": lambda: turn(step, values),
        }
    )
    waits, numpys = (ratio(found["queued"], found[name]) for name in ("waiting", "numpy"))
    print(
        f"{count} turns on {words(nbytes)}: queued / with a wait {waits}, / NumPy {numpys}; operators / NumPy "
        f"{ratio(found['operators'], found['numpy'])}; at most {words(kg.memory(device).peak)} reserved"
    )


def print_operator(device: str) -> None:
    """How soon an operator on large arrays returns. A GPU adds them while Python makes a few calls: there the part of
    its time says little, and the time beside that of 16 elements whether anything waits."""
    found = {}
    for n in (16, 18_000_000):
        x, y = (kg.asarray(np.ones(n), device=device) for _ in range(2))
        returned, parts = list[float](), list[float]()
        for _ in range(20 * ROUNDS):
            start = time.perf_counter()
            z = x + y
            returned.append(time.perf_counter() - start)
            z.wait()
            parts.append(returned[-1] / (time.perf_counter() - start))
            del z
        found[n] = min(returned), min(parts)
    (small, _), (large, part) = found.values()
    print(
        f"x + y of two arrays of {words(x.nbytes)}: returns after {1e6 * large:.1f} us, {100 * part:.2f} % of its time "
        f"(of 16 elements: after {1e6 * small:.1f} us)"
    )


def print_small_operators(device: str) -> None:
    for n in (16, 1024):
        values = np.ones(n)
        x = kg.asarray(values, device=device)

        def repeat(a: Any) -> None:
            for _ in range(1000):
                a + a

        found = seconds_in_turns({"ours": partial(repeat, x), "numpy": partial(repeat, values)})
        ours, numpys = (1e3 * min(times) for times in found.values())
        print(f"x + x of {n} elements: {ours:.2f} us (NumPy {numpys:.2f} us)")


def sorted_rows(x: Any) -> Any:
    return np.cumsum(np.sort(x, axis=1), axis=1)


# what the functions of the soak are: elementwise, reduced, sorted, with temporaries and several results
PROGRAMS: tuple[Callable[[Any], Any], ...] = (
    lambda x: x * 0.5 + 1.0,
    lambda x: (x - x.mean(axis=1, keepdims=True)) / (1.0 + np.abs(x).max(axis=1, keepdims=True)),
    sorted_rows,
    lambda x: (np.sort(x, axis=1)[:, ::2], np.exp(-x * x)),
    lambda x: np.where(x > 0, x, 0.0) @ np.ones((x.shape[1], 8)),
)
FUNCTIONS, CHECKS = 200, 1000  # of a soak of four minutes or more
TOLERANCE = 256 << 20
FLAT_MEAN, FLAT_PEAK = 1.1, 1.25  # the last quarter beside the second, at most
GIVEN_BACK = 0.98


class Peers:
    """PyTorch and CuPy, those that are there, each allocating and dropping arrays. lock: held meanwhile."""

    def __init__(self) -> None:
        self.lock, self.failures = threading.Lock(), list[str]()
        self.makers: dict[str, Callable[[int], Any]] = {}
        self.held: dict[str, Callable[[], int]] = {}
        self.trims: list[Callable[[], Any]] = []
        with contextlib.suppress(ImportError):
            torch = import_module("torch")

            if torch.cuda.is_available():
                self.makers["PyTorch"] = lambda n: torch.full((n,), 7, dtype=torch.uint8, device="cuda")
                self.held["PyTorch"] = torch.cuda.memory_reserved
                self.trims.append(torch.cuda.empty_cache)
        with contextlib.suppress(ImportError):
            cupy = import_module("cupy")

            self.makers["CuPy"] = lambda n: cupy.full((n,), 7, cupy.uint8)
            self.held["CuPy"] = cupy.get_default_memory_pool().total_bytes
            self.trims.append(cupy.get_default_memory_pool().free_all_blocks)

    def reserved(self) -> int:
        return sum(held() for held in self.held.values())

    def allocate_in_thread(self, name: str, until: Callable[[], bool]) -> None:
        rng, arrays = random.Random(name), deque[Any](maxlen=8)
        while not until():
            with self.lock:
                try:
                    arrays.append(self.makers[name](rng.randrange(1 << 12, 256 << 20)))
                    if int(arrays[0][-1]) != 7 or int(arrays[-1][0]) != 7:
                        self.failures.append(f"{name}: an array of 7 has another value")
                except Exception as error:  # out of memory
                    self.failures.append(f"{name}: {error}")
                if rng.random() < 0.1:
                    arrays.clear()
            time.sleep(0.002)

    def trim(self) -> None:
        for trim in self.trims:
            trim()


class Soak:
    """Counts of a soak. calls, functions: how many there were; compared: calls whose results were; wrong: those with
    another result than NumPy's."""

    def __init__(self, seconds: float, functions: int, calls: int) -> None:
        self.start, self.seconds, self.lock = time.monotonic(), seconds, threading.Lock()
        self.calls_of_function = max(1, -(-calls // functions))
        self.calls = self.functions = self.compared = self.wrong = 0
        self.failures: list[str] = []

    def is_over(self) -> bool:
        return time.monotonic() > self.start + self.seconds

    def use_in_thread(self, seed: int) -> None:
        """Make a function of random kind, size and memory mode, call it, drop it; now and then what it held too."""
        rng, kept = random.Random(seed), deque[Any](maxlen=6)
        try:
            while not self.is_over():
                plain, rows = rng.choice(PROGRAMS), rng.choice((rng.randrange(1, 300), rng.randrange(300, 20_000)))
                mode: Any = rng.choice(("balanced", "concurrency", "small"))
                f = kg.kernel_graph(device="cuda", memory=mode)(plain)
                values = np.random.default_rng(rows).normal(size=(rows, rng.choice((64, 200, 512))))
                given, expected = kg.asarray(values, device="cuda"), leaves(plain(values))
                for turn in range(self.calls_of_function):
                    if self.is_over():
                        return
                    results = leaves(f(given))
                    kept.append(results)
                    self.count_call(results, () if turn % 8 else expected)
                with self.lock:
                    self.functions += 1
        except BaseException as error:
            self.failures.append(repr(error))

    def count_call(self, results: tuple[Any, ...], expected: tuple[Any, ...]) -> None:
        """expected: what the results have to be, if they are looked at."""
        right = all(np.allclose(ours, wanted) for ours, wanted in zip(results, expected, strict=bool(expected)))
        with self.lock:
            self.calls += 1
            self.compared += bool(expected)
            self.wrong += not right


@dataclass(frozen=True)
class Check:
    """The account beside the driver's figure at one moment. seconds: since the start; theirs: what each peer has
    reserved; taken: what the driver says that neither is free nor the peers' nor the context's."""

    seconds: float
    account: Any
    theirs: Mapping[str, int]
    taken: int

    @property
    def apart(self) -> int:
        """By how much the driver's figure is above the account."""
        return self.taken - int(self.account.held)

    def lines(self) -> list[str]:
        more, less = max(0, self.apart), max(0, -self.apart)
        theirs = ", ".join(f"{words(nbytes)} of {name}" for name, nbytes in self.theirs.items())
        return [
            f"after {self.seconds:.1f} s the driver has {words(more or less)} {'more' if more else 'less'}: "
            f"{words(self.taken)} beside {theirs or 'nobody'} and the context; the account has "
            f"{words(self.account.held)}:",
            *str(self.account).split("\n")[1:],
        ]


def leaves(results: Any) -> tuple[Any, ...]:
    return results if isinstance(results, tuple) else (results,)


def checks_of_soak(soak: Soak, peers: Peers, context: int) -> list[Check]:
    """So many checks, evenly over the time; fewer if one takes longer than there is."""
    checks: list[Check] = []
    for number in range(CHECKS):
        time.sleep(max(0.0, soak.start + number * soak.seconds / CHECKS - time.monotonic()))
        if soak.is_over():
            break
        with peers.lock:  # theirs is read in one go
            account, theirs = kg.memory("cuda"), {name: held() for name, held in peers.held.items()}
        assert account.system is not None
        free, every = account.system
        taken = every - free - sum(theirs.values()) - context
        checks.append(Check(time.monotonic() - soak.start, account, theirs, taken))
    return checks


def print_verdict(good: bool, text: str) -> bool:
    print(f"  {'good' if good else 'BAD '}  {text}")
    return good


def print_soak(seconds: float) -> bool:
    """Eight threads make, call and drop functions beside PyTorch and CuPy; the account beside the driver's figure."""
    kg.kernel_graph(device="cuda")(sorted_rows)(np.ones((64, 64), np.float32)).wait()
    peers = Peers()
    for make in peers.makers.values():  # what a library takes when it is first used
        make(1 << 20)
    start, context = settled_account(peers)
    time.sleep(1)
    if settled_account(peers)[1] != context:
        print("  others use this card: the figures of the driver are theirs too")
    assert start.system is not None
    limit = kg.memory_limit(device="cuda")
    kg.memory_limit(start.system[0] // 2, "cuda")
    soak = Soak(seconds, functions=FUNCTIONS, calls=10_000)
    threads = [threading.Thread(target=soak.use_in_thread, args=(seed,)) for seed in range(8)]
    threads += [threading.Thread(target=peers.allocate_in_thread, args=(n, soak.is_over)) for n in peers.makers]
    with kg.override(in_flight_bytes=4 << 30):
        for thread in threads:
            thread.start()
        checks = checks_of_soak(soak, peers, context)
        for thread in threads:
            thread.join()
    kg.memory_limit(limit, "cuda")
    print(f"soak of {seconds:.0f} s, 8 threads beside {' and '.join(peers.makers) or 'nobody'}:")
    return print_verdicts(soak, peers, checks, start)


def print_verdicts(soak: Soak, peers: Peers, checks: list[Check], start: Any) -> bool:
    """A line for each; whether all are good."""
    failures = [*dict.fromkeys(soak.failures + peers.failures)]
    good = print_verdict(
        not soak.wrong and not failures and soak.functions >= FUNCTIONS,
        f"wrong answers: {soak.wrong} of {soak.compared} compared, of {soak.calls} calls of {soak.functions} functions "
        f"made and dropped (at least {FUNCTIONS}); {len(failures)} errors",
    )
    for failure in failures[:10]:
        print("        failed:", failure)
    apart = [abs(check.apart) for check in checks]
    above = sum(a > TOLERANCE for a in apart)
    good &= print_verdict(
        len(checks) == CHECKS and not above,
        f"account and driver: {len(checks)} checks of {CHECKS}, at most {words(max(apart))} apart, {above} times more "
        f"than {words(TOLERANCE)}; in each tenth at most "
        + ", ".join(words(max(apart[len(apart) * i // 10 : len(apart) * (i + 1) // 10])) for i in range(10)),
    )
    for line in max(checks, key=lambda check: abs(check.apart)).lines():
        print("       ", line)
    quarters = [checks[len(checks) * i // 4 : len(checks) * (i + 1) // 4] for i in range(4)]
    for name, figures in (
        ("reserved by us", [[check.account.reserved for check in quarter] for quarter in quarters]),
        ("taken by us, says the driver", [[check.taken for check in quarter] for quarter in quarters]),
    ):
        means, peaks = [sum(each) // len(each) for each in figures], [max(each) for each in figures]
        good &= print_verdict(
            means[3] <= FLAT_MEAN * means[1] and peaks[3] <= FLAT_PEAK * peaks[1],
            f"flat: {name} in each quarter at most {', '.join(map(words, peaks))}, on average "
            f"{', '.join(map(words, means))}; the last / the second {means[3] / means[1]:.2f} (at most {FLAT_MEAN})",
        )
    used = max(sum(check.account.in_use.values()) for check in checks)
    reserved = max(check.account.reserved for check in checks)
    print(f"        reserved / in use, each at its most: {reserved / used:.2f} of {words(used)}")
    end, _ = settled_account(peers)
    assert start.system is not None and end.system is not None
    back = end.system[0] / start.system[0]
    good &= print_verdict(
        back >= GIVEN_BACK,
        f"after empty_cache {100 * back:.1f} % of what was free at the start (at least {100 * GIVEN_BACK:.0f} %)",
    )
    print(end)
    return good


def settled_account(peers: Peers) -> tuple[Any, int]:
    """The account when nothing runs and caches are empty, and the bytes of contexts."""
    kg.waitall()
    gc.collect()
    kg.empty_cache("cuda")
    peers.trim()
    account = kg.memory("cuda")
    return account, account.others - peers.reserved()


def print_idle_share() -> None:
    """What PyTorch, CuPy and JAX get of the card when all our functions are dropped and nobody empties a cache."""
    use_much_memory()
    account = kg.memory("cuda")
    assert account.system is not None
    share = int(0.6 * account.system[1])
    peers = Peers()
    makers = dict(peers.makers)
    with contextlib.suppress(ImportError):
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        import jax.numpy as jnp

        makers["JAX"] = lambda n: jnp.full((n >> 12, 1 << 12), 7, jnp.uint8)[-1]  # the last: it gives nothing back
    for name, make in makers.items():
        ours = words(kg.memory("cuda").reserved)
        try:
            right = int(make(share)[-1]) == 7
            print(f"{name} gets {words(share)}, 60 % of the card, beside {ours} that are ours: {right}")
        except Exception as error:
            print(f"{name} does not get {words(share)}, 60 % of the card: {str(error)[:200]}; {kg.memory('cuda')}")
        peers.trim()


def use_much_memory() -> None:
    """Six functions whose peaks together are several times the card's memory; all is dropped."""
    for rows in (2048, 8192, 16_384, 24_576, 28_672, 32_768):
        f = kg.kernel_graph(device="cuda")(sorted_rows)
        x = kg.asarray(np.ones((rows, 16_384), np.float32), device="cuda")
        held = [f(x) for _ in range(4)]
        held[-1].wait()
        del f, x, held
    gc.collect()
    print(f"dropped functions: {words(kg.memory('cuda').reserved)} are kept of {words(kg.memory('cuda').peak)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--minutes", type=float, default=8.0, help="of the soak, on a GPU")
    parser.add_argument("--soak", action="store_true", help="the soak alone")
    given = parser.parse_args()
    if not given.soak:
        for nbytes in (1_000_000, 8_000_000, 32_000_000):
            print_loops(given.device, nbytes)
        print_operator(given.device)
        print_small_operators(given.device)
    if given.device == "cuda":
        good = print_soak(60 * given.minutes)
        print_idle_share()
        sys.exit(not good)


if __name__ == "__main__":
    main()
