"""Looking up, scanning, sorting and counting: this project beside torch and cupy on a GPU, or beside NumPy on the CPU.

    python benchmarks/gpu_indexing.py [--device cpu] [--only sort cumsum] [--seconds 2] [--small]

The least traffic of a sort is counted as one read and one write of the keys; a device-to-device copy is the limit.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from common import Peers, clock_of, machine, print_tables, wall_clock

import kernelgraph as kg

PARSER = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
PARSER.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
PARSER.add_argument("--only", nargs="*", default=[], help="names of workloads (default: all)")
PARSER.add_argument("--skip", nargs="*", default=[], help="peers to leave out")
PARSER.add_argument("--seconds", type=float, default=2.0, help="time for each workload")
PARSER.add_argument("--small", action="store_true", help="64 times smaller: a check, no measurement")
PACKAGES = ("kernelgraph", "numpy", "numba-cuda", "cuda-core", "torch", "cupy")
Call = Callable[[], Any]


@dataclass(frozen=True)
class Workload:
    """`body(m, *arrays)`, m the module that NumPy's words come from; torch: the same in torch's; nbytes: the least
    traffic of a call; ours: the body in words of this project's."""

    name: str
    title: str
    arrays: Callable[[], list[np.ndarray[Any, Any]]]
    body: Callable[..., Any]
    torch: Callable[..., Any]
    nbytes: int
    ours: Callable[..., Any] | None = None


def floats(n: int, seed: int = 0) -> np.ndarray[Any, Any]:
    some = np.random.default_rng(seed).standard_normal(min(n, 1 << 24)).astype(np.float32)
    return np.resize(some, n)


def integers(n: int, high: int, dtype: str = "i8") -> np.ndarray[Any, Any]:
    return np.random.default_rng(1).integers(0, high, n).astype(dtype)


def workloads(log: int) -> list[Workload]:
    """log: of the number of elements; the running sum has four times as many."""
    n, rows = 1 << log, (1 << (log - 12), 1 << 12)
    name = f"2^{log}"
    table = (1 << (log - 6), 64)
    return [
        Workload("gather", f"`exp(x[i])`, {name} float32, random int64 indices", lambda: [floats(n), integers(n, n)],
                 lambda m, x, i: m.exp(x[i]), lambda t, x, i: t.exp(x[i]), 16 * n),
        Workload("gather-near", f"`x[i] * 2`, {name} float32, indices in order",
                 lambda: [floats(n), np.arange(n)[::-1].copy()],
                 lambda m, x, i: x[i] * 2, lambda t, x, i: x[i] * 2, 16 * n),
        Workload("rows", f"`x[i].sum(1)`, {table[0]} random rows of 64 float32",
                 lambda: [floats(n).reshape(table), integers(table[0], table[0])],
                 lambda m, x, i: x[i].sum(1), lambda t, x, i: x[i].sum(1), 4 * n),
        Workload("cumsum", f"`cumsum(x)`, 2^{log + 2} float32", lambda: [floats(4 * n)],
                 lambda m, x: m.cumsum(x), lambda t, x: t.cumsum(x, 0), 32 * n),
        Workload("cumsum-rows", f"`cumsum(x, 1)`, {rows[0]} x {rows[1]} float32", lambda: [floats(n).reshape(rows)],
                 lambda m, x: m.cumsum(x, axis=1), lambda t, x: t.cumsum(x, 1), 8 * n),
        Workload("cumsum-columns", f"`cumsum(x, 0)`, {rows[1]} x {rows[0]} float32",
                 lambda: [floats(n).reshape(rows[::-1])],
                 lambda m, x: m.cumsum(x, axis=0), lambda t, x: t.cumsum(x, 0), 8 * n),
        Workload("sort-int", f"`sort(x)`, {name} int32", lambda: [integers(n, 1 << 31, "i4")],
                 lambda m, x: m.sort(x), lambda t, x: t.sort(x).values, 8 * n),
        Workload("sort", f"`sort(x)`, {name} float32", lambda: [floats(n)],
                 lambda m, x: m.sort(x), lambda t, x: t.sort(x).values, 8 * n),
        Workload("sort-rows", f"`sort(x, 1)`, {rows[0]} x {rows[1]} float32", lambda: [floats(n).reshape(rows)],
                 lambda m, x: m.sort(x, axis=1), lambda t, x: t.sort(x, 1).values, 8 * n),
        Workload("argsort", f"`argsort(x)`, {name} float32", lambda: [floats(n)],
                 lambda m, x: m.argsort(x), lambda t, x: t.argsort(x), 12 * n),
        Workload("bincount", f"`bincount(x, minlength=256)`, {name} int32", lambda: [integers(n, 256, "i4")],
                 lambda m, x: m.bincount(x, minlength=256), lambda t, x: t.bincount(x, minlength=256), 4 * n),
        Workload("histogram", f"`histogram(x, 100, (-4, 4))[0]`, {name} float32", lambda: [floats(n)],
                 lambda m, x: m.histogram(x, bins=100, range=(-4.0, 4.0))[0],
                 lambda t, x: t.histc(x, 100, -4.0, 4.0), 4 * n),
        Workload("searchsorted", f"`searchsorted(edges, x)`, {name} float32 in 4096 edges",
                 lambda: [np.sort(floats(4096)), floats(n, 1)],
                 lambda m, e, x: m.searchsorted(e, x), lambda t, e, x: t.searchsorted(e, x), 12 * n),
        Workload("add-at", f"`add.at(zeros(4096), i, x)`, 2^{log - 4} float32",
                 lambda: [integers(n >> 4, 4096), floats(n >> 4)], _add_at,
                 lambda t, i, x: t.zeros(4096, device=x.device).index_add_(0, i, x), 12 * (n >> 4)),
        Workload("add-at-16", f"`add.at(zeros(16), i, x)`, {name} float32", lambda: [integers(n, 16), floats(n)],
                 lambda m, i, x: _add_at(m, i, x, 16),
                 lambda t, i, x: t.zeros(16, device=x.device).index_add_(0, i, x), 12 * n),
        Workload("add-at-many", f"`add.at(zeros(2^{log - 6}), i, x)`, 2^{log - 4} float32",
                 lambda: [integers(n >> 4, n >> 6), floats(n >> 4)], lambda m, i, x: _add_at(m, i, x, n >> 6),
                 lambda t, i, x: t.zeros(n >> 6, device=x.device).index_add_(0, i, x), 12 * (n >> 4)),
        Workload("weights", f"`bincount(i, x, 256)`, {name} float32", lambda: [integers(n, 256), floats(n)],
                 lambda m, i, x: m.bincount(i, x, minlength=256),
                 lambda t, i, x: t.bincount(i, x, minlength=256), 12 * n),
        _topk("topk", f"`kg.topk(x, 100)[0]`, {name} float32", 100, lambda: floats(n), n),
        _topk("topk-many", f"`kg.topk(x, 2^{log - 6})[0]`, {name} float32", n >> 6, lambda: floats(n), n),
        _topk("topk-rows", f"`kg.topk(x, 10)[0]`, {rows[0]} x {rows[1]} float32", 10,
              lambda: floats(n).reshape(rows), n),
        _topk("topk-long", f"`kg.topk(x, 10)[0]`, {n >> 16} x 65536 float32", 10,
              lambda: floats(n).reshape(-1, 1 << 16), n),
        Workload("median", f"`median(x)`, {name} float32", lambda: [floats(n)],
                 lambda m, x: m.median(x), lambda t, x: t.median(x), 4 * n),
        Workload("median-rows", f"`median(x, 1)`, {rows[0]} x {rows[1]} float32", lambda: [floats(n).reshape(rows)],
                 lambda m, x: m.median(x, axis=1), lambda t, x: t.median(x, 1).values, 4 * n),
        Workload("percentile", f"`percentile(x, [5, 95])`, {name} float32", lambda: [floats(n)],
                 lambda m, x: m.percentile(x, [5, 95]), _percentile, 4 * n),
        Workload("scatter", f"`y[i] = x`, 2^{log - 4} float32",
                 lambda: [integers(n >> 4, n >> 4), floats(n >> 4)], _scatter,
                 lambda t, i, x: t.zeros(x.shape[0], device=x.device).index_put_((i,), x), 16 * (n >> 4)),
    ]  # fmt: skip


def _add_at(m: Any, i: Any, x: Any, places: int = 4096) -> Any:
    y = m.zeros(places, m.float32)
    m.add.at(y, i, x)
    return y


def _greatest(k: int) -> tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]:
    """NumPy's, torch's and this project's."""
    return (
        lambda m, x: m.sort(x, axis=-1)[..., ::-1][..., :k],
        lambda t, x: t.topk(x, k).values,
        lambda x: kg.topk(x, k)[0],
    )


def _topk(name: str, title: str, k: int, x: Call, n: int) -> Workload:
    numpy, torch, ours = _greatest(k)
    return Workload(name, title, lambda: [x()], numpy, torch, 4 * n, ours)


def _percentile(t: Any, x: Any) -> Any:
    """Of sorted values: torch's quantile takes at most 2^24."""
    return t.sort(x).values[[len(x) // 20, len(x) * 19 // 20]]


def _scatter(m: Any, i: Any, x: Any) -> Any:
    y = m.zeros(x.shape, m.float32)
    y[i] = x
    return y


def candidates(work: Workload, device: str, peers: Peers) -> tuple[dict[str, Call], list[str]]:
    """Each candidate as a call, and what failed."""
    arrays, notes = work.arrays(), []
    ours = kg.kernel_graph(device=device)(work.ours or (lambda *a: work.body(np, *a)))
    mine = [kg.asarray(a, device=device) for a in arrays]
    found: dict[str, Call] = {"kernelgraph": lambda: ours(*mine)}
    if device == "cpu":
        found["kernelgraph"] = lambda: ours(*mine).wait()
    wanted = np.asarray(work.body(np, *arrays)).reshape(-1)[:1000]
    got = np.asarray(found["kernelgraph"]()).reshape(-1)[:1000]
    if not work.name.startswith("argsort"):
        np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-3)
    if device == "cpu":
        found["numpy"] = lambda: work.body(np, *arrays)
        return found, notes
    if torch := peers.get("torch"):
        theirs = [torch.from_numpy(a).cuda() for a in arrays]
        found["torch"] = lambda: work.torch(torch, *theirs)
        source = torch.empty(max(1, work.nbytes // 8), dtype=torch.float32, device="cuda")
        target = torch.empty_like(source)
        found["copy"] = lambda: target.copy_(source)
    if cupy := peers.get("cupy"):
        held = [cupy.asarray(a) for a in arrays]
        found["cupy"] = lambda: work.body(cupy, *held)
    for name in [n for n in found if n != "kernelgraph"]:
        try:
            found[name]()
        except Exception as error:  # named, not hidden
            notes.append(f"{name} fails: {type(error).__name__}: {' '.join(str(error).split())[:160]}")
            del found[name]
    return found, notes


def main() -> None:
    options = PARSER.parse_args()
    cuda = options.device == "cuda"
    peers = Peers([p for p in ("torch", "cupy") if p not in options.skip and cuda]).load()
    clock, where = wall_clock, ""
    if cuda:
        from cuda.core import Device

        gpu = Device(0)
        gpu.set_current()
        clock, where = clock_of(gpu.sync), gpu.name

    def release() -> None:
        gc.collect()
        if torch := peers.get("torch"):
            torch.cuda.empty_cache()
        if cupy := peers.get("cupy"):
            cupy.get_default_memory_pool().free_all_blocks()

    print(f"## {where or 'CPU'}\n\n{machine(None, PACKAGES, where)}\n")
    log = (26 if cuda else 22) - (6 if options.small else 0)
    failed = print_tables(
        [w for w in workloads(log) if not options.only or w.name in options.only],
        lambda work: candidates(work, options.device, peers),
        lambda _: clock,
        options.seconds,
        release,
    )
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    os.environ.setdefault("KERNELGRAPH_TUNE", "1")
    main()
