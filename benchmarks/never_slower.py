"""Is `streams="auto"` ever slower than the best fixed choice? Paired, calls of 34 programs and the field's.

    python benchmarks/never_slower.py --device cpu            # all; --only sorts,attention for some
    python benchmarks/never_slower.py --device cuda --minutes 8 --pairs 60 --seconds 2
    python benchmarks/never_slower.py --rival numpy           # programs that were slower than NumPy itself

The rivals are one stream, 2, 4 and 8 streams, and on a GPU each of them replayed as a graph and launched step by step.
Each program is called in both ways: `waited`, each call is waited for, and `queued`, calls one behind the other and one
wait at the end. The best rival of each way is found in rounds of its own; then `auto` and it are called in pairs, in
alternating order. The answer
is the median of the pairs' ratios with its 95 % interval (order statistics). A program is lost where all of the
interval lies above 1.03. With `--rival numpy` the rival is the function as it stands, called with NumPy's arrays.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))
sys.path.insert(0, str(Path(__file__).parent))
from common import machine, show
from field_programs import FIELD_PROGRAMS
from workloads import numpy_words

import kernelgraph as kg
from kernelgraph.dsl.array.devices import device_place_of_name, open_device
from kernelgraph.runtime.core.settings import override
from kernelgraph.runtime.tune.trial import ALONE, QUEUED

LOST = 1.03
STREAMS = (1, 2, 4, 8)
SAMPLE = {"waited": 100e-6, "queued": 1e-3}  # seconds of one sample at least: shorter calls are made several times
QUEUE = 8  # calls of a sample of queued ones, at least
SETTLING = 500  # calls in each way that `auto` may need to make up its mind,
SETTLING_SECONDS = 3.0  # if they take no longer
Given = dict[str, Sequence[Any]]  # the arguments of each way of calling
PACE = 5  # rounds among the rivals before the best is known


@dataclass(frozen=True)
class Case:
    """A program and what makes its arguments."""

    name: str
    function: Callable[..., Any]
    arrays: Callable[[np.random.Generator], Sequence[Any]]


def of(*shapes: tuple[int, ...], dtype: Any = np.float32, low: float = 0.1) -> Callable[..., Sequence[Any]]:
    """Random arrays of these shapes."""
    return lambda rng: [rng.uniform(low, 1, s).astype(dtype) for s in shapes]


def chain(x):
    return np.exp(-(x * x)) * np.sin(x) + 0.5 * x


def black_scholes(s, k, t):
    d1 = (np.log(s / k) + 0.05 * t) / (0.2 * np.sqrt(t))
    d2 = d1 - 0.2 * np.sqrt(t)
    tail = [1 / (1 + np.exp(-1.702 * d)) for d in (d1, d2)]
    call = s * tail[0] - k * np.exp(-0.03 * t) * tail[1]
    return call, call - s + k * np.exp(-0.03 * t)


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def layer_norm(x):
    c = x - x.mean(axis=-1, keepdims=True)
    return c / np.sqrt((c * c).mean(axis=-1, keepdims=True) + 1e-5)


def both_sums(x):
    e = np.exp(x)
    return e.sum(axis=0), e.sum(axis=1)


def sums(*xs):
    return [(x * x).sum() for x in xs]


def stencil(u):
    for _ in range(4):
        u = 0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:])
    return u


def branches(x, *weights):
    return [np.maximum(np.maximum(x @ w, 0) @ w, 0) for w in weights]


def products(a, b, c):
    return (a @ b) @ c


def sorts(*xs):
    return [np.sort(x) for x in xs]


def scans(*xs):
    return [np.cumsum(np.exp(-x), axis=0) for x in xs]


def lopsided(big, *small):
    return np.sort(np.sin(big)), [np.cumsum(s) * 2 for s in small]


def mixed(a, b, x):
    return a @ b, np.sort(x), np.exp(x).sum(), np.cumsum(a, axis=1)


def diamond(x):
    a, b = np.cumsum(x, axis=0), np.sort(x, axis=1)
    return (a - b).sum(axis=0), (a * b).max(axis=1)


def k_means(points, centres):
    distances = ((points[:, None, :] - centres[None, :, :]) ** 2).sum(axis=-1)
    return distances.argmin(axis=1), distances.min(axis=1).sum()


def mlp(x, w1, w2, w3):
    return np.tanh(np.tanh(x @ w1) @ w2) @ w3


def attention(q, k, v):
    scores = q @ np.swapaxes(k, -1, -2) * 0.125
    return softmax(scores) @ v


def gradient(x, y, w):
    p = 1 / (1 + np.exp(-(x @ w)))
    return x.T @ (p - y) / x.shape[0], ((p - y) ** 2).mean()


def covariance(x):
    c = x - x.mean(axis=0)
    return c.T @ c / x.shape[0], x.mean(axis=0), x.std(axis=0)


def mandelbrot(re, im):
    zr, zi = re * 0, im * 0
    for _ in range(12):
        zr, zi = zr * zr - zi * zi + re, 2 * zr * zi + im
    return zr * zr + zi * zi < 4


def stacked(*xs):
    return np.stack([np.exp(x) * 2 + 1 for x in xs])


def transposes(x, y):
    return x.T + 2 * y, np.sort(x.T, axis=0)


def update(u):
    v = np.sort(u, axis=1)
    u[1:-1] = 0.5 * (v[:-2] + v[2:])
    return u.sum(axis=0), v


def ensemble(x, *weights):
    outputs = [softmax(x @ w) for w in weights]
    return sum(outputs) / len(outputs)


CASES = (
    Case("chain, 1e3", chain, of((1000,))),
    Case("chain, 1e5", chain, of((100_000,))),
    Case("chain, 1e7", chain, of((10_000_000,))),
    Case("black-scholes, 1e6", black_scholes, of((1_000_000,), (1_000_000,), (1_000_000,))),
    Case("softmax, 512 x 1024", softmax, of((512, 1024))),
    Case("layer norm, 2048 x 1024", layer_norm, of((2048, 1024))),
    Case("both sums, 1000 x 1000", both_sums, of((1000, 1000))),
    Case("8 sums, 1e4", sums, of(*[(10_000,)] * 8)),
    Case("8 sums, 1e6", sums, of(*[(1_000_000,)] * 8)),
    Case("stencil, 256 x 256", stencil, of((256, 256))),
    Case("stencil, 2048 x 2048", stencil, of((2048, 2048))),
    Case("4 branches, 64 x 64", branches, of(*[(64, 64)] * 5)),
    Case("8 branches, 128 x 128", branches, of(*[(128, 128)] * 9)),
    Case("4 branches, 384 x 384", branches, of(*[(384, 384)] * 5)),
    Case("products, 300 x 300", products, of((300, 300), (300, 300), (300, 300))),
    Case("2 sorts, 1e4", sorts, of((10_000,), (10_000,))),
    Case("2 sorts, 1e6", sorts, of((1_000_000,), (1_000_000,))),
    Case("6 sorts, 1e5", sorts, of(*[(100_000,)] * 6)),
    Case("4 scans, 1000 x 100", scans, of(*[(1000, 100)] * 4)),
    Case("2 scans, 1e6", scans, of((1_000_000,), (1_000_000,))),
    Case("lopsided, 1e6 and 6 x 1e3", lopsided, of((1_000_000,), *[(1000,)] * 6)),
    Case("mixed, 256 x 256 and 1e5", mixed, of((256, 256), (256, 256), (100_000,))),
    Case("diamond, 500 x 500", diamond, of((500, 500))),
    Case("k-means, 20000 x 8, 16", k_means, of((20_000, 8), (16, 8))),
    Case("mlp, 64 x 512", mlp, of((64, 512), (512, 512), (512, 512), (512, 10))),
    Case("attention, 8 x 128 x 64", attention, of((8, 128, 64), (8, 128, 64), (8, 128, 64))),
    Case("gradient, 10000 x 100", gradient, of((10_000, 100), (10_000,), (100,))),
    Case("covariance, 20000 x 64", covariance, of((20_000, 64))),
    Case("mandelbrot, 1e6", mandelbrot, of((1000, 1000), (1000, 1000))),
    Case("64 stacked, 1e3", stacked, of(*[(1000,)] * 64)),
    Case("transposes, 1000 x 1500", transposes, of((1000, 1500), (1500, 1000))),
    Case("update, 400 x 400", update, of((400, 400))),
    Case("ensemble of 6, 256 x 256", ensemble, of(*[(256, 256)] * 7)),
    Case("two of 16", lambda x, y: (np.exp(x), np.cumsum(y)), of((16,), (16,))),
)


def field_cases() -> list[Case]:
    """The programs of `workloads.py`."""
    words = numpy_words()

    def bound(body: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args: body(words, *args)

    return [Case(p.name, bound(p.body), lambda rng, arrays=p.arrays: arrays()) for p in FIELD_PROGRAMS]


def scalars(a, b, c):
    return a * b + c, a - c


def short_lists(xs, ys):
    return [x * 2 + y for x, y in zip(xs, ys, strict=True)]


def few(a, b):
    x = np.array([a, b, a * b])
    return x / x.sum()


def interleaved(a, b):
    z = np.empty((*a.shape, 2), a.dtype)
    z[:, :, 0] = a
    z[:, :, 1] = b
    return z


def reversed_sum(x):
    return np.cumsum(x[::-1])[::-1]


def two_vectors(a, b, x, y):
    return a @ x, b @ y


def both_ways(a, x, y):
    return a @ x, a.T @ y


def numbers(count: int) -> Callable[[np.random.Generator], Sequence[Any]]:
    """Python floats."""
    return lambda rng: [float(n) for n in rng.uniform(1, 2, count)]


def with_vectors(function: Callable[..., Any], n: int, dtype: Any) -> Case:
    matrices = 2 if function is two_vectors else 1
    name = f"{function.__name__}, {n} x {n} {np.dtype(dtype).name}"
    return Case(name, function, of(*[(n, n)] * matrices, (n,), (n,), dtype=dtype))


SLOWER_THAN_NUMPY = (
    Case("3 scalars", scalars, numbers(3)),
    Case("2 lists of 3 numbers", short_lists, lambda rng: [rng.uniform(1, 2, 3).tolist() for _ in range(2)]),
    Case("array of 3 numbers", few, numbers(2)),
    Case("interleaved, 500 x 500 float32", interleaved, of((500, 500), (500, 500))),
    Case("interleaved, 500 x 500 float64", interleaved, of((500, 500), (500, 500), dtype=np.float64)),
    Case("reversed sum, 1e5 float64", reversed_sum, of((100_000,), dtype=np.float64)),
    *(
        with_vectors(function, n, dtype)
        for function in (two_vectors, both_ways)
        for dtype in (np.float32, np.float64)
        for n in (32, 128, 256, 512, 1024, 2048, 4096)
    ),
)


def leaves(result: Any) -> Iterator[Any]:
    if isinstance(result, list | tuple):
        for part in result:
            yield from leaves(part)
    else:
        yield result


def sampler(f: Callable[..., Any], arguments: Sequence[Any], way: str) -> Callable[[int], float]:
    """Seconds of a call, of so many."""

    def wait(result: Any) -> None:
        for leaf in leaves(result):
            if isinstance(leaf, kg.Array):
                leaf.wait()

    def sample(times: int) -> float:
        start = time.perf_counter()
        if way == "queued":
            for _ in range(times):
                f(*arguments)
            kg.waitall()
        else:
            for _ in range(times):
                wait(f(*arguments))
        return (time.perf_counter() - start) / times

    return sample


def rivals(case: Case, device: str, given: Given) -> dict[str, Callable[..., Any]]:
    """A function for each fixed choice that gives a plan of its own."""
    opened: Any = open_device(device_place_of_name(device) or ("cpu", 0))
    found: dict[str, Callable[..., Any]] = {}
    plans = []
    for streams in STREAMS:
        plan = kg.kernel_graph(device=device, streams=streams)(case.function).plan(*given["queued"])
        if plan.steps in plans:  # fewer branches than streams
            continue
        plans.append(plan.steps)
        for way in getattr(opened, "ways", lambda plan: ("",))(plan):
            f = kg.kernel_graph(device=device, streams=streams)(case.function)
            with forced(opened, way):
                for arguments in given.values():
                    f.compile(*arguments)
            found[", ".join(filter(None, (f"{streams} streams", way)))] = f
    return found


@contextmanager
def forced(device: Any, way: str) -> Iterator[None]:
    """Whatever the device makes ready in the block runs in this way."""
    own = device.prepare
    if way:
        device.prepare = lambda plan, _="": own(plan, way)
    try:
        yield
    finally:
        if way:
            del device.prepare


def bits(result: Any) -> list[bytes]:
    return [np.asarray(leaf).tobytes() for leaf in leaves(result)]


def interval(ratios: Sequence[float]) -> tuple[float, float]:
    """The 95 % interval of the median: order statistics of a binomial with p = 1/2 (David, Nagaraja, 2003)."""
    ordered, n = sorted(ratios), len(ratios)
    reach = 0.98 * math.sqrt(n)
    low, high = max(0, math.floor(n / 2 - reach)), min(n - 1, math.ceil(n / 2 + reach))
    return ordered[low], ordered[high]


@dataclass(frozen=True)
class Row:
    """What came out of one case."""

    name: str
    way: str
    chosen: str
    best: str
    auto: float
    rival: float
    ratios: tuple[float, ...]

    @property
    def lost(self) -> bool:
        return interval(self.ratios)[0] > LOST

    def __str__(self) -> str:
        low, high = interval(self.ratios)
        ratio = statistics.median(self.ratios)
        return (
            f"| {self.name} | {self.way} | {self.chosen} | {show(self.auto)} | {self.best} | {show(self.rival)} | "
            f"{ratio:.3f} | {low:.3f} to {high:.3f} | {len(self.ratios)} | {'LOST' if self.lost else ''} |"
        )


def settle(f: Callable[..., Any], given: Given) -> None:
    """Calls in each way, in turns, until `auto` has made up its mind."""
    end = time.perf_counter() + SETTLING_SECONDS
    for _ in range(SETTLING // QUEUE):
        for way, arguments in given.items():
            sampler(f, arguments, way)(2 * QUEUE if way == "queued" else QUEUE // 2)
        if time.perf_counter() > end:
            return


def race(case: Case, device: str, pairs: int, seconds: float, numpy: bool = False) -> Iterator[Row]:
    """In each way of calling at least `pairs` pairs, or what fits the time. numpy: NumPy is the only rival."""
    arrays = list(case.arrays(np.random.default_rng(0)))
    placed = [kg.asarray(a, device=device) if isinstance(a, np.ndarray) else a for a in arrays]
    given: Given = {"waited": arrays if device == "cpu" else placed}
    if not numpy:
        given["queued"] = placed
    with override(tune=False):
        fixed = {"NumPy": case.function} if numpy else rivals(case, device, given)
    auto = kg.kernel_graph(device=device)(case.function)
    settle(auto, given)
    if not numpy and case.function is not update:
        wanted = bits(auto(*arrays))
        for name, function in fixed.items():
            if bits(function(*arrays)) != wanted:
                print(f"{case.name}: {name} gives other bits")
    for way, arguments in given.items():
        yield race_in_a_way(case, way, auto, fixed, arguments, pairs, seconds / len(given))


def race_in_a_way(
    case: Case,
    way: str,
    auto: Any,
    fixed: Mapping[str, Callable[..., Any]],
    arguments: Sequence[Any],
    pairs: int,
    seconds: float,
) -> Row:
    """All is compiled, and `auto` has decided."""
    end = time.perf_counter() + seconds
    mine = sampler(auto, arguments, way)
    others = {name: sampler(function, arguments, way) for name, function in fixed.items()}
    least = QUEUE if way == "queued" else 1
    times = max(least, math.ceil(SAMPLE[way] / min(mine(max(3, least)) for _ in range(3))))
    paces: dict[str, list[float]] = {name: [] for name in fixed}
    for _ in range(PACE if len(fixed) > 1 else 1):
        for name, other in others.items():
            paces[name] += [other(times) for _ in range(3)]
    best = min(paces, key=lambda name: statistics.median(paces[name]))
    seen: dict[bool, list[float]] = {True: [], False: []}
    while len(seen[True]) < pairs and (len(seen[True]) < 20 or time.perf_counter() < end):
        for ours in (False, True) if len(seen[True]) % 2 else (True, False):
            seen[ours].append((mine if ours else others[best])(times))
    return Row(
        case.name,
        way,
        chosen(auto, arguments, way),
        best,
        statistics.median(seen[True]),
        statistics.median(seen[False]),
        tuple(a / b for a, b in zip(seen[True], seen[False], strict=True)),
    )


def chosen(auto: Any, arguments: Sequence[Any], way: str) -> str:
    """What `auto` runs in this way of calling."""
    trial = auto.inspect(tuple(arguments), {}).compiled.trial
    if trial is None:
        report = auto.plan(*arguments).report
        return report.chosen if report else ""
    queued = way == "queued" and QUEUED in trial.tuners
    return str(trial.candidates[trial.untimed_candidate(QUEUED if queued else ALONE)].name)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rival", choices=("streams", "numpy"), default="streams")
    parser.add_argument("--only", default="", help="comma-separated parts of names")
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=60.0, help="for each program, at most")
    parser.add_argument("--cache", default="", help="folder of compiled code and tuned winners; empty: a fresh one")
    parser.add_argument("--minutes", type=float, default=math.inf, help="for all of them")
    parser.add_argument("--part", type=int, default=0, help="of --parts equal shares of the programs, this one")
    parser.add_argument("--parts", type=int, default=1)
    options = parser.parse_args()
    end = time.monotonic() + 60 * options.minutes
    parts = [part for part in options.only.split(",") if part]
    print(machine(None, ["numpy"]), "\n")
    print("| program | way | auto chose | auto | best rival | rival | ratio | 95 % interval | pairs | |")
    print("|---|---|---|--:|---|--:|--:|--:|--:|---|")
    rows = []
    with tempfile.TemporaryDirectory() as fresh, override(cache_dir=options.cache or fresh):
        numpy = options.rival == "numpy"
        for case in (SLOWER_THAN_NUMPY if numpy else (*CASES, *field_cases()))[options.part :: options.parts]:
            if parts and not any(part in case.name for part in parts):
                continue
            if time.monotonic() > end:
                print(f"no time for {case.name}")
                continue
            for row in race(case, options.device, options.pairs, options.seconds, numpy):
                rows.append(row)
                print(row, flush=True)
    lost = [f"{row.name}, {row.way}" for row in rows if row.lost]
    print(f"\n{len(rows)} rows, {len(lost)} lost" + (f": {'; '.join(lost)}" if lost else ""))
    return len(lost)


if __name__ == "__main__":
    sys.exit(main())
