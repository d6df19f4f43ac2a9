"""Published NumPy programs with nothing but the decorator added, beside NumPy and, where they take them as they are,
numba and jax.

    python benchmarks/numpy_kernels.py [--only jacobi_2d kmeans] [--seconds 1] [--threads 2] [--small] [--peers]

Every call gets fresh copies of its arguments, made before the clock starts, and is timed until its results are there.
numba gets the same source with `njit` on every function, jax the same source with `jax.numpy` in NumPy's place and
`jit`; a dash says that it refuses the program, gives other results, or compiles for longer than a minute.
"""

# ruff: noqa: E402
from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))
from common import Peers, machine, pin, show

PARSER = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
PARSER.add_argument("--only", nargs="*", default=[], help="names of programs (default: all)")
PARSER.add_argument("--seconds", type=float, default=1.0, help="time for each program, compilation not included")
PARSER.add_argument("--threads", type=int, default=2, help="cores for every candidate")
PARSER.add_argument("--small", action="store_true", help="the sizes of the tests: checks the benchmark")
PARSER.add_argument("--peers", action="store_true", help="numba and jax too")
OPTIONS = PARSER.parse_args()
pin(OPTIONS.threads)

import functools
import inspect
import signal
import statistics
import time
import types
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import kernelgraph as kg
from kernelgraph.dsl.tree import flatten, unflatten
from tests.end_to_end.numpy_kernels import Case, cases

Call = Callable[..., Any]


def leaves(value: Any) -> list[Any]:
    found: list[Any] = []
    flatten(value, found)
    return found


def copied(arguments: Any) -> Any:
    """The arguments with arrays of their own."""
    found: list[Any] = []
    tree = flatten(arguments, found)
    return unflatten(tree, [x.copy() if isinstance(x, np.ndarray) else x for x in found])


def waited(result: Any) -> Any:
    for leaf in leaves(result):
        wait = getattr(leaf, "wait", None) or getattr(leaf, "block_until_ready", None)
        if wait is not None:
            wait()
    return result


def clock(call: Call, arguments: Any) -> float:
    """Seconds of one call."""
    mine = copied(arguments)
    start = time.perf_counter()
    waited(call(*mine))
    return time.perf_counter() - start


def samples(candidates: dict[str, Call], arguments: Any, seconds: float) -> dict[str, float]:
    """The median seconds of a call of each, taken in turns."""
    found: dict[str, list[float]] = {name: [] for name in candidates}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(found["NumPy"]) < 3:
        for name, call in candidates.items():
            found[name].append(clock(call, arguments))
    return {name: statistics.median(times) for name, times in found.items()}


# peers


@contextmanager
def at_most(seconds: int) -> Iterator[None]:
    """TimeoutError after so many seconds, where the system has alarms."""

    def stop(*_: Any) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def rewritten(case: Case, old: str, new: str) -> dict[str, Any]:
    """The names of the program's module, made from its source with one word changed."""
    module = inspect.getmodule(case.function)
    assert module is not None
    names: dict[str, Any] = {"__name__": module.__name__, "__package__": module.__package__}
    exec(compile(inspect.getsource(module).replace(old, new), str(module.__file__), "exec"), names)
    return names


def in_numba(case: Case, numba: Any, arguments: Any) -> Call:
    names = rewritten(case, "", "")
    for name, value in list(names.items()):
        if isinstance(value, types.FunctionType) and value.__module__ == names["__name__"]:
            names[name] = numba.njit(value)
    call: Call = names[case.name]
    return call


def in_jax(case: Case, jax: Any, arguments: Any) -> Call:
    jax.config.update("jax_enable_x64", True)
    function = rewritten(case, "import numpy as np", "import jax.numpy as np")[case.name]
    fixed = [not any(isinstance(x, np.ndarray) for x in leaves(a)) for a in arguments]

    @functools.partial(jax.jit, static_argnums=tuple(i for i, f in enumerate(fixed) if f))
    def call(*args: Any) -> Any:
        return function(*args)

    return call


PEERS = {"numba": in_numba, "jax": in_jax}


def peer(name: str, module: Any, case: Case, arguments: Any, expected: Any) -> Call | None:
    """The program in another library, if it takes it as it is and gives NumPy's results."""
    try:
        with at_most(60):
            call = PEERS[name](case, module, arguments)
            mine = copied(arguments)
            found = leaves(waited(call(*mine))), leaves(mine)
            for a, b in zip([x for part in found for x in part], expected, strict=True):
                np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-3, atol=1e-6)
    except Exception:
        return None
    return call


# one row


def row(case: Case, peers: Peers) -> str:
    arguments = case.make(case.small if OPTIONS.small else case.large)
    options: dict[str, Any] = {"untraceable": "split"} if case.split else {}
    ours = kg.kernel_graph(case.function, device="cpu", **options)
    reference = copied(arguments)
    expected = [*leaves(case.function(*reference)), *leaves(reference)]
    start = time.perf_counter()
    clock(ours, arguments)
    first = time.perf_counter() - start
    for _ in range(12):  # the plan is chosen among the first calls
        if time.perf_counter() - start < 20:
            clock(ours, arguments)
    candidates: dict[str, Call] = {"kernelgraph": ours, "NumPy": case.function}
    for name, module in peers.modules.items():
        call = peer(name, module, case, arguments, expected)
        if call is not None:
            candidates[name] = call
    times = samples(candidates, arguments, OPTIONS.seconds)
    split = ours.explain(*copied(arguments)).count("\nsplit at ") if case.split else 0
    tasks = len(ours.program(*copied(arguments)).tasks)
    others = [f"{times[name] / times['kernelgraph']:.2f}" if name in times else "-" for name in PEERS if peers.modules]
    cells = [
        case.name,
        case.field,
        "0",
        f"{tasks}{' (first part)' if case.split else ''}",
        str(split),
        show(first),
        show(times["NumPy"]),
        show(times["kernelgraph"]),
        f"{times['NumPy'] / times['kernelgraph']:.2f}",
        *others,
    ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    peers = Peers(tuple(PEERS) if OPTIONS.peers else ()).load()
    print("## Published NumPy programs\n")
    print(machine(OPTIONS.threads, ("kernelgraph", "numpy", "llvmlite", *peers.modules)))
    names = [
        "program",
        "field",
        "lines changed",
        "tasks",
        "splits",
        "first call",
        "NumPy",
        "kernelgraph",
        "NumPy / ours",
    ]
    names += [f"{name} / ours" for name in PEERS if peers.modules]
    print(f"\n| {' | '.join(names)} |\n|--|--|{'--:|' * (len(names) - 2)}")
    ratios = []
    for case in cases():
        if OPTIONS.only and case.name not in OPTIONS.only:
            continue
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            line = row(case, peers)
        print(line, flush=True)
        ratios.append(float(line.split("|")[9]))
    print(f"\n{len(ratios)} programs; NumPy / ours: median {statistics.median(ratios):.2f}, least {min(ratios):.2f}")
    print(f"{sum(r >= 1 for r in ratios)} are at least as fast as NumPy")


if __name__ == "__main__":
    main()
