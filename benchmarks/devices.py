"""Two devices of one machine beside PyTorch and JAX: copies, collectives, branches, data-parallel steps, a call's cost.

    python benchmarks/devices.py [--device cuda] [--only copies collectives branches steps calls hops store] [--small]

`--device cpu` runs the same on two CPU devices, which share the machine's cores: it shows that all runs, not how fast.
Every figure is the least of several rounds. Float32 products are whole float32 ones in all three libraries; PyTorch's
collectives and DDP are two processes with NCCL, JAX's steps one process with `shard_map`.
"""

# ruff: noqa: E402
from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

PARSER = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
PARSER.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
PARSER.add_argument(
    "--only", nargs="*", default=("copies", "collectives", "branches", "steps", "calls", "hops", "store")
)
PARSER.add_argument("--small", action="store_true", help="small sizes, to see that it runs")
PARSER.add_argument("--peer", default="", help="run as one process of a peer (used by the script itself)")
PARSER.add_argument("--rounds", type=int, default=5)
OPTIONS = PARSER.parse_args()
ON_GPU = OPTIONS.device == "cuda"
if not ON_GPU:
    os.environ.setdefault("KERNELGRAPH_CPU_DEVICES", "2")
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import numpy as np

FIRST, SECOND = f"{OPTIONS.device}:0", f"{OPTIONS.device}:1"
COLLECTIVE_BYTES = (4, 1 << 14, 1 << 20, 1 << 24) if OPTIONS.small else (4, 1 << 14, 1 << 20, 1 << 24, 1 << 28, 1 << 30)
BRANCH_SIZES = (64, 128) if OPTIONS.small else (256, 1024, 2048)
LAYERS, WIDTH = (2, 64) if OPTIONS.small else (8, 4096)
ROWS = (64, 16) if OPTIONS.small else (4096, 256)


def optional(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def least(call: Callable[[], Any], wait: Callable[[], Any], calls: int, rounds: int = OPTIONS.rounds) -> float:
    """The least seconds a call over the rounds, of so many calls in a row."""
    for _ in range(3):
        call()
    wait()
    found = []
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(calls):
            call()
        wait()
        found.append((time.perf_counter() - start) / calls)
    return min(found)


def calls_within(seconds: float, call: Callable[[], Any], wait: Callable[[], Any]) -> int:
    """How many calls fill about so many seconds."""
    call()
    wait()
    start = time.perf_counter()
    call()
    wait()
    return max(1, min(1000, int(seconds / max(time.perf_counter() - start, 1e-6))))


def timed(call: Callable[[], Any], wait: Callable[[], Any], seconds: float = 0.15) -> float:
    call()  # compiles
    return least(call, wait, calls_within(seconds, call, wait))


# PyTorch, two processes


def run_peer(name: str) -> list[dict[str, float]]:
    """What the first of two processes of a peer printed."""
    port = str(20000 + os.getpid() % 20000)
    command = [
        sys.executable,
        __file__,
        "--device",
        OPTIONS.device,
        "--peer",
        name,
        *(["--small"] if OPTIONS.small else []),
    ]
    ranks = []
    for rank in (0, 1):
        environment = dict(os.environ, RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
        out = subprocess.PIPE if rank == 0 else subprocess.DEVNULL
        ranks.append(subprocess.Popen(command, env=environment, stdout=out, text=True))
    try:
        text = ranks[0].communicate(timeout=240)[0]
        return [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    except subprocess.TimeoutExpired:
        return []
    finally:
        for rank in ranks:
            rank.kill()


def peer_process(name: str) -> None:
    import torch
    import torch.distributed as dist

    rank = int(os.environ["RANK"])
    if ON_GPU:
        torch.cuda.set_device(rank)
    dist.init_process_group("nccl" if ON_GPU else "gloo")
    device = torch.device(f"cuda:{rank}" if ON_GPU else "cpu")
    wait = torch.cuda.synchronize if ON_GPU else lambda: None
    if name == "collectives":
        for nbytes in COLLECTIVE_BYTES:
            x = torch.ones(nbytes // 4, device=device)
            count = 200 if nbytes <= 1 << 20 else 20
            seconds = least(lambda x=x: dist.all_reduce(x.mul_(0.5)), wait, count)
            one = least(lambda x=x: x.mul_(0.5), wait, count)
            if rank == 0:
                print(json.dumps({"bytes": nbytes, "seconds": seconds, "multiply": one}), flush=True)
    if name == "steps":
        for rows in (*ROWS, ROWS[0] // 2):
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

                seconds = least(step, wait, 20 if rows < 1000 else 5)
                if rank == 0:
                    print(json.dumps({"rows": rows, "parallel": parallel, "seconds": seconds}), flush=True)
    dist.destroy_process_group()


if OPTIONS.peer:
    peer_process(OPTIONS.peer)
    raise SystemExit

from common import machine

import kernelgraph as kg

torch, jax = optional("torch"), optional("jax")


GPU = f"two {torch.cuda.get_device_name()}" if ON_GPU and torch is not None else ""


def wait() -> None:
    kg.synchronize(FIRST)
    kg.synchronize(SECOND)


def table(title: str, head: str, rows: list[str]) -> None:
    columns = head.count("|") + 1
    print(f"\n### {title}\n\n| {head} |\n|{'---|' + '--:|' * (columns - 1)}")
    print("\n".join(f"| {row} |" for row in rows), flush=True)


def torch_wait() -> None:
    for i in range(2):
        torch.cuda.synchronize(i)


def copies() -> None:
    rows = []
    for nbytes in (1 << 20,) if OPTIONS.small else (1 << 28, 1 << 30):
        x, y = (kg.asarray(np.ones(nbytes // 4, np.float32), device=d) for d in (FIRST, SECOND))
        one = timed(lambda x=x: x.to_device(SECOND), wait)
        both = timed(lambda x=x, y=y: (x.to_device(SECOND), y.to_device(FIRST)), wait)
        found = [nbytes / one / 1e9, 2 * nbytes / both / 1e9]
        del x, y
        if ON_GPU and torch is not None:
            a, b = (torch.ones(nbytes // 4, device=d) for d in (FIRST, SECOND))
            c, d = torch.empty_like(b), torch.empty_like(a)
            found.append(nbytes / timed(lambda a=a, c=c: c.copy_(a, non_blocking=True), torch_wait) / 1e9)
            streams = [torch.cuda.Stream(device=i) for i in range(2)]

            def exchange(a: Any = a, b: Any = b, c: Any = c, d: Any = d, streams: Any = streams) -> None:
                with torch.cuda.stream(streams[0]):
                    c.copy_(a, non_blocking=True)
                with torch.cuda.stream(streams[1]):
                    d.copy_(b, non_blocking=True)

            found.append(2 * nbytes / timed(exchange, torch_wait) / 1e9)
            del a, b, c, d
        rows.append(f"{nbytes >> 20} MiB | " + " | ".join(f"{v:.0f}" for v in found))
    peers = " | PyTorch `copy_` | both ways" if ON_GPU and torch is not None else ""
    table("Copies between two devices, GB/s", f"array | kernelgraph | both ways{peers}", rows)


def collectives() -> None:
    peer = {row["bytes"]: row for row in run_peer("collectives")} if torch is not None else {}
    mesh, rows = kg.Mesh((FIRST, SECOND)), []

    @kg.kernel_graph(mesh=mesh, in_axes=None, out_axes=None)
    def reduce(x: Any) -> Any:
        return kg.all_reduce(x * np.float32(0.5))

    for nbytes in COLLECTIVE_BYTES:
        x = kg.replicate(np.ones(nbytes // 4, np.float32), mesh)
        seconds = timed(lambda x=x: reduce(x), wait)
        row = f"{nbytes} | {seconds * 1e6:.1f} | {nbytes / seconds / 1e9:.1f}"
        if nbytes in peer:
            there = peer[nbytes]["seconds"]
            row += f" | {there * 1e6:.1f} | {nbytes / there / 1e9:.1f} | {there / seconds:.2f}"
        rows.append(row)
    peers = " | PyTorch us | GB/s | PyTorch's time / ours" if peer else ""
    table("Half of an array, all-reduced over two devices", f"bytes | us | GB/s{peers}", rows)


def branch_function(devices: tuple[str, ...] = ()) -> Callable[..., Any]:
    def branches(x: Any, *weights: Any) -> Any:
        total = []
        for i, w in enumerate(weights):
            y = kg.place(x, devices[i % len(devices)]) if devices else x
            v = kg.place(w, devices[i % len(devices)]) if devices else w
            for _ in range(4):
                y = np.maximum(y @ v, 0)
            total.append(kg.place(y, FIRST) if devices else y)
        return sum(total)

    return branches


def branches() -> None:
    """What the library places is timed when it has chosen between one device and both, as `why` tells."""
    rows = []
    for n in BRANCH_SIZES:
        rng = np.random.default_rng(0)
        given = [rng.normal(size=(n, n)).astype(np.float32) / np.float32(np.sqrt(n)) for _ in range(9)]
        here = [kg.asarray(a, device=FIRST) for a in given]
        there = [kg.asarray(a, device=FIRST if i == 0 or i % 2 else SECOND) for i, a in enumerate(given)]
        one = kg.kernel_graph(branch_function(), device=FIRST)
        placed = kg.kernel_graph(branch_function(), device=(FIRST, SECOND))
        by_hand = kg.kernel_graph(branch_function((FIRST, SECOND)), device=FIRST)
        expected = np.asarray(one(*here))
        for f in (placed, by_hand):
            for turn in range(200):  # while plans take turns
                np.testing.assert_allclose(np.asarray(f(*here)), expected, rtol=1e-3, atol=1e-4)
                if turn >= 12 and (f is by_hand or "several devices: " in f.why()):
                    break
        found = [timed(lambda f=f, a=a: f(*a), wait) for f, a in ((one, here), (placed, here), (by_hand, there))]
        alone = [
            timed(lambda f=f, a=a: (f(*a), wait()), wait) for f, a in ((one, here), (placed, here), (by_hand, there))
        ]
        row = f"{n} | {found[0] * 1e3:.3f} ms | {found[0] / found[1]:.2f} | {found[0] / found[2]:.2f}"
        row += f" | {alone[0] / alone[1]:.2f} | {alone[0] / alone[2]:.2f}"
        if ON_GPU and torch is not None:
            ratio = torch_branches(given)
            row += f" | {ratio[0] * 1e3:.3f} ms | {ratio[0] / ratio[1]:.2f}"
        rows.append(row)
    peers = " | PyTorch, one GPU | two by hand" if ON_GPU and torch is not None else ""
    head = "n | one device | two, placed by the library | by hand | each call waited for: by the library | by hand"
    table("Eight branches of four (n x n product, relu): one device's time over two's", head + peers, rows)


def torch_branches(given: list[Any]) -> tuple[float, float]:
    def run(devices: tuple[str, ...], x: list[Any], weights: list[Any]) -> Any:
        out = []
        for i, w in enumerate(weights):
            y = x[i % len(devices)]
            for _ in range(4):
                y = torch.relu(y @ w)
            out.append(y)
        return sum(y.to(FIRST, non_blocking=True) for y in out)

    found = []
    for devices in ((FIRST,), (FIRST, SECOND)):
        weights = [torch.tensor(w, device=devices[i % len(devices)]) for i, w in enumerate(given[1:])]
        x0 = torch.tensor(given[0], device=FIRST)

        def call(devices: Any = devices, weights: Any = weights, x0: Any = x0) -> Any:
            return run(devices, [x0.to(d, non_blocking=True) for d in devices], weights)

        found.append(timed(call, torch_wait))
    return found[0], found[1]


def loss(p: Any, x: Any) -> Any:
    for w, b in p:
        x = np.maximum(x @ w + b, np.float32(0))
    return (x * x).mean()


def sgd(p: Any, g: Any) -> Any:
    lr = np.float32(1e-6)
    return [(w - lr * gw, b - lr * gb) for (w, b), (gw, gb) in zip(p, g, strict=True)]


def our_step(devices: int, rows: int) -> float:
    """Seconds of a step over so many devices, with so many rows on each."""
    rng = np.random.default_rng(0)
    p = [
        (rng.normal(size=(WIDTH, WIDTH)).astype(np.float32) / np.float32(np.sqrt(WIDTH)), np.zeros(WIDTH, np.float32))
        for _ in range(LAYERS)
    ]
    mesh = kg.Mesh((FIRST, SECOND)[:devices])
    train = kg.DataParallel(loss, mesh, update=sgd)
    state = [train.replicate(p)]
    x = kg.shard(rng.normal(size=(rows * devices, WIDTH)).astype(np.float32), mesh)

    def step() -> None:
        state[0], _ = train(state[0], x)

    step()
    return least(step, wait, 20 if rows < 1000 else 5)


def jax_step(devices: int, rows: int) -> float:
    jnp, sharding = jax.numpy, jax.sharding
    jax.config.update("jax_default_matmul_precision", "highest")
    mesh = sharding.Mesh(np.array(jax.devices()[:devices]), ("data",))
    split, whole = (sharding.NamedSharding(mesh, sharding.PartitionSpec(*s)) for s in (("data",), ()))
    rng = np.random.default_rng(0)
    p = [
        (jnp.asarray(rng.normal(size=(WIDTH, WIDTH)).astype(np.float32) / np.float32(np.sqrt(WIDTH))), jnp.zeros(WIDTH))
        for _ in range(LAYERS)
    ]
    p = jax.device_put(p, whole)
    x = jax.device_put(rng.normal(size=(rows * devices, WIDTH)).astype(np.float32), split)

    def value(p: Any, x: Any) -> Any:
        for w, b in p:
            x = jnp.maximum(x @ w + b, 0)
        return (x * x).mean()

    def body(p: Any, x: Any) -> Any:
        g = jax.lax.pmean(jax.grad(value)(p, x), "data")
        return jax.tree_util.tree_map(lambda a, b: a - 1e-6 * b, p, g)

    spec = sharding.PartitionSpec
    mapped = jax.shard_map(body, mesh=mesh, in_specs=(spec(), spec("data")), out_specs=spec(), check_vma=False)
    compiled = jax.jit(mapped, donate_argnums=0)
    state = [p]

    def step() -> None:
        state[0] = compiled(state[0], x)

    return least(step, lambda: jax.block_until_ready(state[0]), 20 if rows < 1000 else 5)


def steps() -> None:
    rows: list[str] = []
    peer = {(r["rows"], r["parallel"]): r["seconds"] for r in run_peer("steps")} if torch is not None else {}
    for label, one, two in [(f"{r} rows a device", r, r) for r in ROWS] + [
        (f"{ROWS[0]} rows in all", ROWS[0], ROWS[0] // 2)
    ]:
        strong = one != two
        found = [our_step(1, one), our_step(2, two)]
        row = f"{label} | {found[0] * 1e3:.2f} ms | {found[1] * 1e3:.2f} ms | {found[0] / found[1]:.3f}"
        if (one, False) in peer and (two, True) in peer:
            a, b = peer[one, False], peer[two, True]
            row += f" | {a * 1e3:.2f} ms | {b * 1e3:.2f} ms | {a / b:.3f}"
        if ON_GPU and jax is not None and len(jax.devices()) > 1:
            a, b = jax_step(1, one), jax_step(2, two)
            row += f" | {a * 1e3:.2f} ms | {b * 1e3:.2f} ms | {a / b:.3f}"
        rows.append(row + (" (strong: of 2)" if strong else " (weak: of 1)"))
    peers = "" if not peer else " | PyTorch, one | DDP, two | one / two"
    peers += " | JAX, one | two | one / two" if ON_GPU and jax is not None else ""
    table(f"A step of {LAYERS} x Linear({WIDTH})", f"batch | one device | two | one / two{peers}", rows)


def calls() -> None:
    rows = []
    x = np.ones(1024, np.float32)
    one = kg.kernel_graph(lambda x: x * np.float32(2), device=FIRST)
    here, mesh = kg.asarray(x, device=FIRST), kg.Mesh((FIRST, SECOND))
    two = kg.kernel_graph(lambda x: x * np.float32(2), mesh=mesh, in_axes=0, out_axes=0)
    parts = kg.shard(np.ones(2048, np.float32), mesh)
    for name, call in (("one device", lambda: one(here)), ("mesh of two", lambda: two(parts))):
        for _ in range(50):
            call()
        rows.append(f"{name} | {least(call, lambda: None, 300, 20) * 1e6:.1f} us")
        wait()
    table("A call of one small kernel on each device, until it returns", "| time", rows)


def hops() -> None:
    """What it takes to go on, on another device, with a result: a chain that goes to and fro, beside one that stays."""
    length = 32

    def chain(devices: tuple[str, str]) -> Callable[[Any], Any]:
        def run(x: Any) -> Any:
            for i in range(length):
                x = kg.place(x, devices[i % 2]).cumsum()
            return x

        return kg.kernel_graph(run, device=FIRST)

    x = kg.asarray(np.ones(64, np.float32), device=FIRST)
    stays, goes = (chain(devices) for devices in ((FIRST, FIRST), (FIRST, SECOND)))
    stay, go = (timed(lambda f=f: (f(x), wait()), wait) / length for f in (stays, goes))
    rows = [f"256 bytes | {stay * 1e6:.1f} us | {go * 1e6:.1f} us | {(go - stay) * 1e6:.1f} us"]
    table("From one small kernel to the next", "array | on one device | on the other, with its copy | more", rows)


def store() -> None:
    """Beside a sum of the same arrays alone, which both devices get."""
    rows, mesh = [], kg.Mesh((FIRST, SECOND))
    add = kg.kernel_graph(lambda x: kg.all_reduce(x), mesh=mesh, in_axes=None, out_axes=None)
    for nbytes in (1 << 12, 1 << 20) if OPTIONS.small else (1 << 12, 1 << 20, 1 << 22, 1 << 26):
        given = np.ones(nbytes // 4, np.float32)
        pushed = [kg.asarray(given, device=d) for d in (FIRST, SECOND)]
        found = []
        for updater in (None, lambda key, pushed, stored: stored.__isub__(np.float32(0.1) * pushed)):
            kv = kg.KVStore("device")
            kv.init("w", kg.asarray(0 * given, device=FIRST))
            if updater is not None:
                kv.set_updater(updater)

            def turn(kv: Any = kv, pushed: Any = pushed) -> None:
                kv.push("w", pushed)
                kv.pull("w")

            found.append(timed(turn, wait))
        x = kg.replicate(given, mesh)
        alone = timed(lambda x=x: add(x), wait)
        shown = " | ".join(f"{seconds * 1e6:.0f} us | {seconds / alone:.2f}" for seconds in found)
        rows.append(f"{nbytes >> 10} KiB | {alone * 1e6:.0f} us | {shown}")
    head = "array | the sum alone | push and pull | over the sum | with an updater | over the sum"
    table("KVStore: push from two devices, update, pull", head, rows)


PARTS: dict[str, Callable[[], None]] = {
    "copies": copies,
    "collectives": collectives,
    "branches": branches,
    "steps": steps,
    "calls": calls,
    "hops": hops,
    "store": store,
}

if __name__ == "__main__":
    print(machine(None, ("kernelgraph", "numpy", "numba", "torch", "jax"), GPU))
    for part in OPTIONS.only:
        start = time.perf_counter()
        try:
            PARTS[part]()
        except Exception as error:  # the other parts still count
            print(f"{part}: {type(error).__name__}: {error}", flush=True)
        print(f"\n({part}: {time.perf_counter() - start:.0f} s)", flush=True)
