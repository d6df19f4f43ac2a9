"""Four GPUs of one host, or two, beside NCCL through PyTorch in one run: collectives, steps, branches, stores.

    python benchmarks/four_gpus.py [--minutes 8] [--only collectives steps ...] [--device cpu --small]

Each section is a process of its own with a time of its own, prints its table row by row, and the others go on where it
fails. PyTorch is as many processes with NCCL; every collective is of half of an array, so a kernel comes first in all.
`--device cpu --small` shows that all runs, on CPU devices of this machine. NVLink multicast stays off.
"""

# ruff: noqa: E402
from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

PARSER = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
PARSER.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
PARSER.add_argument("--small", action="store_true", help="small sizes, to see that it runs")
PARSER.add_argument("--minutes", type=float, default=8.0, help="of all sections together")
PARSER.add_argument("--devices", type=int, default=4, help="how many; the mesh of 2 x 2 needs four")
PARSER.add_argument(
    "--each", type=int, default=84, help="random collectives, and chaos runs, of each process of `checks`"
)
PARSER.add_argument("--only", nargs="*", default=(), help="sections")
PARSER.add_argument("--section", default="", help="run as the process of one section (used by the script itself)")
PARSER.add_argument("--peer", default="", help="run as one process of PyTorch (used by the script itself)")
PARSER.add_argument("--seconds", type=float, default=60.0, help="of that process")
PARSER.add_argument("--sizes", nargs="*", type=int, default=(), help="bytes of the arrays of collectives")
OPTIONS = PARSER.parse_args()
ON_GPU, SMALL = OPTIONS.device == "cuda", OPTIONS.small
COUNT = OPTIONS.devices
END = time.perf_counter() + OPTIONS.seconds
os.environ["NCCL_NVLS_ENABLE"] = "0"
if not ON_GPU:
    os.environ["KERNELGRAPH_CPU_DEVICES"] = str(COUNT)

import numpy as np

NAMES = tuple(f"{OPTIONS.device}:{i}" for i in range(COUNT))
OPS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast")
SIZES = tuple(OPTIONS.sizes) or ((4, 1 << 14) if SMALL else (4, 1 << 14, 1 << 17, 1 << 20, 1 << 24, 1 << 28, 1 << 30))
STORE_SIZES = (1 << 12,) if SMALL else (1 << 12, 1 << 20, 1 << 26)
BRANCH_SIZES = (64,) if SMALL else (1024, 2048)
LAYERS, WIDTH = 4, 64 if SMALL else 4096
ROWS = (64, 16) if SMALL else (4096, 256)
WAYS = ("copies", "reads", "root", "nccl") if ON_GPU else ("copies", "reads", "root")
F32 = np.float32
RATE = F32(0.5 if SMALL else 1e-6)


def out_of_time(margin: float = 0.0) -> bool:
    return time.perf_counter() + margin > END


def least(call: Callable[[], Any], wait: Callable[[], Any], calls: int, rounds: int = 4, warm: int = 4) -> float:
    """The least seconds a call over the rounds, of so many calls in a row."""
    for _ in range(warm):
        call()
    wait()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(calls):
            call()
        wait()
        times.append((time.perf_counter() - start) / calls)
        if out_of_time():
            break
    return min(times)


def timed(call: Callable[[], Any], wait: Callable[[], Any], seconds: float = 0.06) -> float:
    for _ in range(4):
        call()
    wait()
    start = time.perf_counter()
    call()
    wait()
    calls = max(2, min(300, int(seconds / max(time.perf_counter() - start, 1e-6))))
    return least(call, wait, calls)


def head(title: str, columns: str) -> None:
    count = columns.count("|") + 1
    print(f"\n### {title}\n\n| {columns} |\n|{'---|' + '--:|' * (count - 1)}", flush=True)


def row(*cells: Any) -> None:
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)


# PyTorch, a process for each device


def _passed_options() -> list[str]:
    """What processes of this script are told of its own options."""
    sizes = ["--sizes", *map(str, OPTIONS.sizes)] if OPTIONS.sizes else []
    return ["--devices", str(COUNT), "--each", str(OPTIONS.each), *sizes, *["--small"] * SMALL]


def run_peer(name: str, seconds: float) -> list[dict[str, Any]]:
    """What the first of PyTorch's processes printed; nothing where there is no PyTorch."""
    port = str(20000 + os.getpid() % 20000)
    command = [sys.executable, __file__, "--device", OPTIONS.device, "--peer", name, "--seconds", str(seconds)]
    command += _passed_options()
    ranks = []
    for rank in range(COUNT):
        environment = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(COUNT), MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
        out = subprocess.PIPE if rank == 0 else None if rank == 1 else subprocess.DEVNULL
        ranks.append(subprocess.Popen(command, env=environment, stdout=out, text=True))
    try:
        text = ranks[0].communicate(timeout=seconds + 30)[0]
    except subprocess.TimeoutExpired:
        ranks[0].kill()
        text = ranks[0].communicate()[0]
    finally:
        for rank in ranks:
            rank.kill()
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def peer_collectives(torch: Any, dist: Any, device: Any) -> Iterator[dict[str, Any]]:
    wait = torch.cuda.synchronize if ON_GPU else lambda: None
    for op in OPS:
        for nbytes in SIZES:
            given = max(1, nbytes // 4 // COUNT) if op == "all_gather" else max(COUNT, nbytes // 4)
            given = given if op != "all_reduce" else nbytes // 4
            x = torch.ones(given, device=device)
            large = torch.empty(given * COUNT, device=device) if op == "all_gather" else None
            part = torch.empty(given // COUNT, device=device) if op == "reduce_scatter" else None

            def call(op: str = op, x: Any = x, large: Any = large, part: Any = part) -> None:
                x.mul_(0.5)
                if op == "all_reduce":
                    dist.all_reduce(x)
                elif op == "all_gather":
                    dist.all_gather_into_tensor(large, x)
                elif op == "reduce_scatter":
                    dist.reduce_scatter_tensor(part, x)
                else:
                    dist.broadcast(x, 0)

            if not ON_GPU and op in ("all_gather", "reduce_scatter"):  # gloo has none of these
                continue
            calls = 200 if nbytes <= 1 << 20 else 20 if nbytes <= 1 << 26 else 5
            yield {"op": op, "bytes": nbytes, "seconds": least(call, wait, calls)}
            del x, large, part


def peer_steps(torch: Any, dist: Any, device: Any) -> Iterator[dict[str, Any]]:
    wait = torch.cuda.synchronize if ON_GPU else lambda: None
    for rows in ROWS:
        layers = [m for _ in range(LAYERS) for m in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU())]
        model = torch.nn.Sequential(*layers).to(device)
        for parallel in (False, True):
            whole = torch.nn.parallel.DistributedDataParallel(model) if parallel else model
            optimizer = torch.optim.SGD(whole.parameters(), lr=1e-6)
            x = torch.randn(rows, WIDTH, device=device)

            def step(whole: Any = whole, optimizer: Any = optimizer, x: Any = x) -> None:
                optimizer.zero_grad(set_to_none=True)
                (whole(x) ** 2).mean().backward()
                optimizer.step()

            yield {"rows": rows, "parallel": parallel, "seconds": least(step, wait, 20 if rows < 1000 else 5)}


def peer_process(name: str) -> None:
    import torch
    import torch.distributed as dist

    rank = int(os.environ["RANK"])
    if ON_GPU:
        torch.cuda.set_device(rank)
    dist.init_process_group("nccl" if ON_GPU else "gloo")
    device = torch.device(f"cuda:{rank}" if ON_GPU else "cpu")
    for result in {"collectives": peer_collectives, "steps": peer_steps}[name](torch, dist, device):
        if rank == 0:
            print(json.dumps(result), flush=True)
    dist.destroy_process_group()


if OPTIONS.peer:
    peer_process(OPTIONS.peer)
    raise SystemExit

from common import machine

import kernelgraph as kg
from kernelgraph.compiler.placement import replicate


def wait() -> None:
    for name in NAMES:
        kg.synchronize(name)


def peer_or_none(name: str, seconds: float) -> list[dict[str, Any]]:
    try:
        import torch  # noqa: F401
    except ImportError:
        return []
    return run_peer(name, seconds)


# collectives

BODIES: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "all_reduce": (lambda x: kg.all_reduce(x * F32(0.5)), None),
    "all_gather": (lambda x: kg.all_gather(x * F32(0.5)), None),
    "reduce_scatter": (lambda x: kg.reduce_scatter(x * F32(0.5)), 0),
    "broadcast": (lambda x: kg.broadcast(x * F32(0.5)), None),
}


def given_elements(op: str, nbytes: int) -> int:
    """Of one device's array, where the larger side of a collective has so many bytes."""
    count = nbytes // 4
    return count if op == "all_reduce" else max(1, count // COUNT) if op == "all_gather" else max(COUNT, count)


def collective_program(op: str) -> Any:
    body, out_axes = BODIES[op]
    return kg.kernel_graph(body, mesh=kg.Mesh(NAMES), in_axes=None, out_axes=out_axes)


def collectives() -> None:
    peer = {(r["op"], r["bytes"]): r["seconds"] for r in peer_or_none("collectives", 15 if SMALL else 40)}
    mesh = kg.Mesh(NAMES)
    head(
        "Half of an array, by size, us; speed: PyTorch's time over ours",
        "op | bytes | ours | PyTorch | speed | how",
    )
    for op in OPS:
        for nbytes in SIZES:
            if out_of_time(2):
                row(op, nbytes, "no time left", "", "", "")
                continue
            try:
                f = collective_program(op)
                x = kg.replicate(np.ones(given_elements(op, nbytes), F32), mesh)
                seconds = timed(lambda f=f, x=x: f(x), wait)
                why = f.explain(x).splitlines()[0] if ON_GPU else ""
                there = peer.get((op, nbytes))
                ratio = f"{there / seconds:.2f}" if there else ""
                row(op, nbytes, f"{seconds * 1e6:.1f}", f"{there * 1e6:.1f}" if there else "", ratio, why)
            except Exception:
                row(op, nbytes, "fails", "", "", "")
                traceback.print_exc(file=sys.stdout)
            finally:
                f = x = None
                kg.waitall()


def ways() -> None:
    """Each way by itself, whatever is chosen."""
    mesh = kg.Mesh(NAMES)
    sizes = SIZES if SMALL or OPTIONS.sizes else (4, 1 << 17, 1 << 20, 1 << 22, 1 << 24, 1 << 28)
    head("Each way by itself, us", "op | bytes | " + " | ".join(WAYS))
    for op in OPS:
        for nbytes in sizes:
            cells = []
            for way in WAYS:
                if out_of_time(2):
                    cells.append("-")
                    continue
                try:
                    with kg.override(collectives=way):
                        f = collective_program(op)
                        x = kg.replicate(np.ones(given_elements(op, nbytes), F32), mesh)
                        cells.append(f"{timed(lambda f=f, x=x: f(x), wait, 0.04) * 1e6:.1f}")
                except Exception as error:
                    cells.append(type(error).__name__)
                    traceback.print_exc(file=sys.stdout)
                finally:
                    f = x = None
                    kg.waitall()
            row(op, nbytes, *cells)


def levels() -> None:
    """Broadcasts by reads, in so many levels of pieces, whatever their size asks for."""
    mesh, counts = kg.Mesh(NAMES), (2, 3, 4, 6, 8)
    head("A broadcast in so many levels, us", "bytes | " + " | ".join(map(str, counts)))
    if SMALL:
        replicate.STEP_BYTES, replicate.PIECE_ELEMENTS = 64, 16
    for nbytes in (1 << 14,) if SMALL else (1 << 23, 1 << 24, 1 << 26, 1 << 28, 1 << 30):
        cells = []
        x = kg.replicate(np.ones(nbytes // 4, F32), mesh)
        for count in counts:
            replicate.BROADCAST_LEVELS = ((0, count),)
            with kg.override(collectives="reads"):
                f = collective_program("broadcast")
                seconds = 0.0 if out_of_time(2) else timed(lambda f=f, x=x: f(x), wait, 0.04)
            cells.append(f"{seconds * 1e6:.1f}" if seconds else "-")
        row(nbytes, *cells)


# steps


def loss(p: Any, x: Any) -> Any:
    for w, b in p:
        x = np.maximum(x @ w + b, F32(0))
    return (x * x).mean()


def sgd(p: Any, g: Any) -> Any:
    rate = RATE
    return [(w - rate * gw, b - rate * gb) for (w, b), (gw, gb) in zip(p, g, strict=True)]


def parameters() -> list[Any]:
    rng, scale = np.random.default_rng(0), F32(np.sqrt(WIDTH))
    return [(rng.normal(size=(WIDTH, WIDTH)).astype(F32) / scale, np.zeros(WIDTH, F32)) for _ in range(LAYERS)]


def data_parallel_step(devices: int, rows: int, calls: int = 0) -> tuple[float, str]:
    """Seconds of a step over so many devices, with so many rows on each, and how these exchange gradients. calls: in
    flight."""
    mesh = kg.Mesh(NAMES[:devices])
    train = kg.DataParallel(loss, mesh, update=sgd)
    state = [train.replicate(parameters())]
    x = kg.shard(np.random.default_rng(1).normal(size=(rows * devices, WIDTH)).astype(F32), mesh)

    def step() -> None:
        state[0], _ = train(state[0], x)

    warm, many = 56 if devices > 1 else 24, 20 if rows < 1000 else 5  # ways take turns at first
    seconds = least(step, wait, calls or many, 10 if calls else 4, warm)
    lines = (train.why() if hasattr(train, "why") else train._step.why()).splitlines()
    chosen = [line.partition(" (")[0] for line in lines if line.startswith("* ")]
    return seconds, "; ".join([*[line for line in lines if line.startswith("collectives")][:1], *chosen])


def steps() -> None:
    peer = {(r["rows"], r["parallel"]): r["seconds"] for r in peer_or_none("steps", 15 if SMALL else 60)}
    head(
        f"A step of {LAYERS} x Linear({WIDTH}), ms: one device's time over all's, each with as many rows",
        "rows a device | one | all | one / all | how | PyTorch, one | DDP, all | one / all",
    )
    alone = {rows: data_parallel_step(1, rows)[0] for rows in ROWS}
    for way in ("auto", "copies", "reads", "nccl") if ON_GPU else ("auto", "copies", "reads"):
        for rows in ROWS:
            if out_of_time(4):
                row(f"{rows}, {way}", "no time left", "", "", "", "", "", "")
                continue
            cells = ["", "", ""]
            if (rows, True) in peer:
                a, b = peer[rows, False], peer[rows, True]
                cells = [f"{a * 1e3:.2f}", f"{b * 1e3:.2f}", f"{a / b:.3f}"]
            try:
                with kg.override(collectives=way):
                    seconds, how = data_parallel_step(COUNT, rows)
                times = f"{alone[rows] * 1e3:.2f}", f"{seconds * 1e3:.2f}", f"{alone[rows] / seconds:.3f}"
                row(f"{rows}, {way}", *times, how, *cells)
            except Exception:
                row(f"{rows}, {way}", "fails", "", "", "", *cells)
                traceback.print_exc(file=sys.stdout)
            kg.waitall()


def grid_step(rows: int) -> float:
    """Seconds of a step on a mesh of 2 x 2: rows in parts along one dimension, and of each two layers the columns of
    the first and the rows of the second along the other. It is as much arithmetic as `data_parallel_step`'s."""
    mesh = kg.Mesh([list(NAMES[:2]), list(NAMES[2:])], names=("data", "model"))
    pairs = LAYERS // 2
    axes = ({"model": 1}, {"model": 0}, {"model": 0}, None)

    def local_loss(p: Any, x: Any) -> Any:
        for a, c, b, d in p:
            h = np.maximum(x @ a + c, F32(0))
            x = np.maximum(kg.all_reduce(h @ b, along="model") + d, F32(0))
        return (x * x).mean() / F32(2)  # both devices along `model` have the same

    def step(*given: Any) -> Any:
        p = [given[4 * i : 4 * i + 4] for i in range(pairs)]
        gradients = kg.grad(local_loss)(p, given[-1])
        rate, new = RATE, []
        for old, g in zip(p, gradients, strict=True):
            whole = [kg.all_reduce(one, along="data") for one in g[:3]] + [kg.all_reduce(g[3])]
            new += [w - rate * one / F32(2) for w, one in zip(old, whole, strict=True)]
        return tuple(new)

    p = parameters()
    flat = [v for i in range(pairs) for v in (*p[2 * i], *p[2 * i + 1])]
    layout = axes * pairs
    program = kg.kernel_graph(step, mesh=mesh, in_axes=(*layout, {"data": 0}), out_axes=layout)
    x = np.random.default_rng(1).normal(size=(rows * COUNT, WIDTH)).astype(F32)
    given = [
        kg.replicate(v, mesh) if axis is None else kg.shard(v, mesh, axis) for v, axis in zip(flat, layout, strict=True)
    ]
    state = [tuple(given)]
    rows_of_x = kg.shard(x, mesh, {"data": 0})
    if SMALL:  # is it the step of one device?
        train = kg.DataParallel(loss, kg.Mesh(NAMES[:1]), update=sgd)
        after, _ = train(p, x)
        want = [np.asarray(v) for pair in after for v in pair]
        before = [v for pair in p for v in pair]
        got = [np.asarray(v) for v in program(*given, rows_of_x)]
        for a, b, c in zip(got, want, before, strict=True):
            assert np.abs(b - c).max() > 1e-4
            np.testing.assert_allclose(a - c, b - c, rtol=1e-3, atol=1e-5)

    def run() -> None:
        state[0] = program(*state[0], rows_of_x)

    return least(run, wait, 20 if rows < 1000 else 5, warm=56)


def grid() -> None:
    head("A mesh of 2 x 2 beside data-parallel on four, ms", "rows a device | data-parallel | 2 x 2 | ratio")
    four = {rows: data_parallel_step(COUNT, rows)[0] for rows in ROWS}
    for way in ("auto", "copies") if ON_GPU else ("auto", "copies", "reads"):
        for rows in ROWS:
            if out_of_time(4):
                row(f"{rows}, {way}", "no time left", "", "")
                continue
            try:
                with kg.override(collectives=way):
                    seconds = grid_step(rows)
                row(f"{rows}, {way}", f"{four[rows] * 1e3:.2f}", f"{seconds * 1e3:.2f}", f"{four[rows] / seconds:.3f}")
            except Exception:
                row(f"{rows}, {way}", "fails", "", "")
                traceback.print_exc(file=sys.stdout)
            kg.waitall()


# branches


def branch_function(devices: tuple[str, ...] = ()) -> Callable[..., Any]:
    def branches(x: Any, *weights: Any) -> Any:
        total = []
        for i, w in enumerate(weights):
            y = kg.place(x, devices[i % len(devices)]) if devices else x
            v = kg.place(w, devices[i % len(devices)]) if devices else w
            for _ in range(4):
                y = np.maximum(y @ v, 0)
            total.append(kg.place(y, NAMES[0]) if devices else y)
        return sum(total)

    return branches


def branches() -> None:
    head(
        "Eight branches of four (n x n product, relu): one device's time over all's, in ten runs",
        "n | one device | placed by the library: slowest, middle, best run | by hand: slowest, middle, best",
    )
    for n in BRANCH_SIZES:
        rng = np.random.default_rng(0)
        given = [rng.normal(size=(n, n)).astype(F32) / F32(np.sqrt(n)) for _ in range(9)]
        here = [kg.asarray(a, device=NAMES[0]) for a in given]
        there = [kg.asarray(a, device=NAMES[(i - 1) % COUNT if i else 0]) for i, a in enumerate(given)]
        one = kg.kernel_graph(branch_function(), device=NAMES[0])
        placed = kg.kernel_graph(branch_function(), device=NAMES)
        by_hand = kg.kernel_graph(branch_function(NAMES), device=NAMES[0])
        expected = np.asarray(one(*here))
        for f in (placed, by_hand):
            for turn in range(120):  # while plans take turns
                np.testing.assert_allclose(np.asarray(f(*here)), expected, rtol=1e-3, atol=1e-4)
                if turn >= 12 and (f is by_hand or "several devices: " in f.why()):
                    break
        calls = 40 if n < 2000 else 12
        alone: list[float] = []
        ratios: tuple[list[float], list[float]] = ([], [])
        for _ in range(10):
            if out_of_time(1) and alone:
                break
            alone.append(least(partial(one, *here), wait, calls, 1))
            ratios[0].append(alone[-1] / least(partial(placed, *here), wait, calls, 1))
            ratios[1].append(alone[-1] / least(partial(by_hand, *there), wait, calls, 1))
        cells = [", ".join(f"{sorted(r)[i]:.2f}" for i in (0, len(r) // 2, -1)) for r in ratios]
        row(n, f"{min(alone) * 1e3:.3f} ms", *cells)


# stores


def store() -> None:
    head(
        'KVStore("device"): push from all devices and pull, us',
        "bytes | updater | push and pull | pushpull | a sum | push and pull / sum | pushpull / sum",
    )
    mesh = kg.Mesh(NAMES)
    for nbytes in STORE_SIZES:
        count = nbytes // 4
        f = kg.kernel_graph(lambda x: kg.all_reduce(x), mesh=mesh, in_axes=None, out_axes=None)
        x = kg.replicate(np.ones(count, F32), mesh)
        alone = timed(lambda f=f, x=x: f(x), wait)
        for updater, turns in (("adds", 2), ("none", 0)):
            kv = kg.KVStore("device")
            kv.init("w", kg.asarray(np.zeros(count, F32), device=NAMES[0]))
            if updater == "adds":
                kv.set_updater(lambda key, pushed, stored: stored.__iadd__(pushed))
            pushed = [kg.asarray(np.ones(count, F32), device=d) for d in NAMES]
            outs = [kg.asarray(np.zeros(count, F32), device=d) for d in NAMES]
            for turn in range(3):  # is it right?
                kv.pushpull("w", pushed, outs)
                for got in (kv.pull("w"), *outs):
                    assert (np.asarray(got) == COUNT * (turn * turns // 2 + 1)).all()

            def push_and_pull(kv: Any = kv, pushed: Any = pushed) -> None:
                kv.push("w", pushed)
                kv.pull("w")

            both = timed(push_and_pull, wait)
            joined = timed(lambda kv=kv, pushed=pushed, outs=outs: kv.pushpull("w", pushed, outs), wait)
            times = (f"{t * 1e6:.1f}" for t in (both, joined, alone))
            row(nbytes, updater, *times, f"{both / alone:.2f}", f"{joined / alone:.2f}")


# what other programs of this repository do


def run_command(command: list[str], seconds: float) -> None:
    print(f"\n$ {' '.join(command)}", flush=True)
    started = subprocess.Popen(command, cwd=HERE.parent, start_new_session=True)
    try:
        print(f"(exit {started.wait(timeout=seconds)})", flush=True)
    except subprocess.TimeoutExpired:
        print(f"(not ended after {seconds:.0f} s)", flush=True)
        os.killpg(started.pid, 15)


def ranks() -> None:
    """Four processes with a GPU each, by MPI and NCCL: steps, and `dist_sync` beside a sum; then one process, whose
    steps are waited for as well."""
    steps = ["--steps", str(LAYERS), str(WIDTH), "--rounds", "1" if SMALL else "20"]
    script = ["benchmarks/machines.py", "--device", OPTIONS.device, *steps]
    run_command([sys.executable, "-m", "kernelgraph.run", "-n", str(COUNT), *script], OPTIONS.seconds - 20)
    head(
        f"A step of {LAYERS} x Linear({WIDTH}) by one process, each waited for, ms", "rows a device | one | all | ratio"
    )
    for rows in ROWS:
        one, every = (data_parallel_step(devices, rows, 1)[0] for devices in (1, COUNT))
        row(rows, f"{one * 1e3:.2f}", f"{every * 1e3:.2f}", f"{one / every:.3f}")


def checks() -> None:
    """240 random collectives against NumPy, and 500 chaos runs, in processes side by side."""
    ways = ("auto", "reads", "copies") if SMALL else ("auto", "reads", "reads", "root", "copies", "root", "nccl")
    each = 4 if SMALL else OPTIONS.each
    processes = []
    for worker, way in enumerate(ways):
        command = [sys.executable, "-m", "tests.two_devices", OPTIONS.device, str(each), str(COUNT), str(worker * each)]
        environment = dict(os.environ, KERNELGRAPH_COLLECTIVES=way)
        out = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        processes.append(subprocess.Popen(command, cwd=HERE.parent, env=environment, **out))  # type: ignore[call-overload]
    print(f"{len(ways)} of `{' '.join(command[1:])}`, each with seeds of its own", flush=True)
    counts = {"random collectives": [0, 0], "runs with random delays": [0, 0]}  # how many, and how many were wrong
    for worker, process in enumerate(processes):
        try:
            text = process.communicate(timeout=max(1.0, END - time.perf_counter()))[0]
        except subprocess.TimeoutExpired:
            process.kill()
            text = process.communicate()[0] + "\n(stopped: no time left)"
        print(f"{ways[worker]}: " + "\n  ".join(text.strip().splitlines()[-12:]), flush=True)
        for what, count in counts.items():
            for found in re.findall(rf"(\d+) {what}: (\d+)", text):
                count[:] = [total + int(n) for total, n in zip(count, found, strict=True)]
    print("; ".join(f"{n} {what}, {wrong} wrong" for what, (n, wrong) in counts.items()), flush=True)


SECTIONS: dict[str, tuple[Callable[[], None], float]] = {
    "collectives": (collectives, 120),
    "steps": (steps, 95),
    "ranks": (ranks, 75),
    "branches": (branches, 40),
    "store": (store, 25),
    "checks": (checks, 70),
    "grid": (grid, 45),
    "ways": (ways, 60),
    "levels": (levels, 25),
}
"""With the seconds that each may take, beside its start."""
START_SECONDS = 20.0


def main() -> None:
    gpu = ""
    if ON_GPU:
        query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
        gpu = ", ".join(subprocess.run(query, capture_output=True, text=True).stdout.split("\n")).strip(", ")
    print(machine(None, ("kernelgraph", "numpy", "numba", "torch", "nccl4py", "mpi4py"), gpu), flush=True)
    end = time.perf_counter() + OPTIONS.minutes * 60
    for name in OPTIONS.only or SECTIONS:
        left = end - time.perf_counter() - 5
        seconds = min(SECTIONS[name][1], left)
        if seconds < 10:
            print(f"\n({name}: no time left)", flush=True)
            continue
        start = time.perf_counter()
        command = [sys.executable, "-u", __file__, "--device", OPTIONS.device, "--section", name]
        command += ["--seconds", f"{seconds:.0f}", *_passed_options()]
        process = subprocess.Popen(command, start_new_session=True)
        try:
            code = process.wait(timeout=min(seconds + START_SECONDS, left))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            code = process.wait()
        print(f"\n({name}: {time.perf_counter() - start:.0f} s, exit {code})", flush=True)


if __name__ == "__main__":
    if not OPTIONS.section:
        main()
    else:
        try:
            SECTIONS[OPTIONS.section][0]()
        except Exception:
            traceback.print_exc(file=sys.stdout)
            raise SystemExit(1) from None
