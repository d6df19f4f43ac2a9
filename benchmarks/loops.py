"""What loops cost: tracing, planning, launching and running time steps, rolled and as they were traced.

    python benchmarks/loops.py [--device cpu] [--only-deciding]
    python benchmarks/loops.py --nodes 1000 10000 100000 [--only chain]    # compile time of traces that do not repeat

Every figure is the least of several repeats: what disturbs one only ever lengthens it. Tracing is in thread time.
"""

# ruff: noqa: E402
from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from common import machine, pin

PARSER = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
PARSER.add_argument("--device", default="cpu")
PARSER.add_argument("--only-deciding", action="store_true", help="who reads the condition of a while, on a GPU")
PARSER.add_argument("--repeats", type=int, default=5)
PARSER.add_argument("--nodes", type=int, nargs="*", default=[])
PARSER.add_argument("--only", nargs="*", default=[], help="programs of --nodes")
OPTIONS = PARSER.parse_args()
pin(2)

import time
from collections.abc import Callable
from typing import Any

import numpy as np

import kernelgraph as kg
from kernelgraph.compiler.pipeline import compile_graph_to_program
from kernelgraph.dsl.array.devices import open_device
from kernelgraph.runtime.program.plan import Plan
from kernelgraph.runtime.schedule.cost_model import MACHINES
from kernelgraph.runtime.schedule.schedule import plan_by_cost_model


def jacobi(u: Any, steps: int) -> Any:
    for _ in range(steps):
        u[1:-1, 1:-1] = 0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:])
    return u


def sweep(i: Any, u: Any) -> Any:
    u[1:-1, 1:-1] = 0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:])
    return u


def least(call: Callable[[], Any], repeats: int = 0, clock: Callable[[], float] = time.perf_counter) -> float:
    """Seconds."""
    found = []
    for _ in range(repeats or OPTIONS.repeats):
        start = clock()
        call()
        found.append(clock() - start)
    return min(found)


def traced(steps: int, n: int, roll: bool) -> Any:
    with kg.override(roll=roll):
        return kg.kernel_graph(device=OPTIONS.device)(lambda u: jacobi(u, steps)).graph(kg.spec((n, n), np.float64))


def tasks(plan: Plan) -> int:
    return sum(1 + sum(tasks(body) for body in getattr(t.kernel, "bodies", ())) for t in plan.tasks)


def planned(graph: Any) -> Plan:
    kind = "cuda" if OPTIONS.device.startswith("cuda") else "cpu"
    return plan_by_cost_model(compile_graph_to_program(graph, kind), "auto", "balanced", MACHINES[kind])


def tracing() -> None:
    print("\n| steps | nodes traced | us a node: tracing | with rolling | nodes after |\n|--:|--:|--:|--:|--:|")
    traced(100, 32, True)
    for steps in (100, 1000, 4000):
        nodes = len(traced(steps, 32, False).nodes)
        both = [least(lambda r=roll, s=steps: traced(s, 32, r), 5, time.thread_time) for roll in (False, True)]
        alone, rolled = (seconds * 1e6 / nodes for seconds in both)
        print(f"| {steps} | {nodes} | {alone:.1f} | {rolled:.1f} | {len(traced(steps, 32, True).nodes)} |")


def unlike(u: Any, steps: int) -> Any:
    """Steps none of which repeats another one: their windows and factors differ."""
    for i in range(steps):
        low, high = i % 13, 40 + (i * i) % 23
        u[low:high] = 0.5 * u[low:high] + u[low + 1 : high + 1] / (i + 2) - u[64 - high : 64 - low].max()
    return u


def chain(u: Any, steps: int) -> Any:
    x = u
    for i in range(steps):
        x = (x * (1 + 1 / (i + 2)) + u) / (1.5 + i % 7)
        x = np.sin(x) if i % 3 else np.cos(x)
    return x


def outputs(u: Any, steps: int) -> Any:
    return tuple(np.sin(u[i * 7919 % 32 :][:32] * (i + 1.5)) + u[0] for i in range(steps))


def reductions(u: Any, steps: int) -> Any:
    total = 0.0
    for i in range(steps):
        total = total + (np.sin(u * (i + 2.5)) + u * (i % 5)).sum() / (i + 1)
    return total


def items(u: Any, steps: int) -> Any:
    for i in range(steps):
        k = i * i % 62 + 1
        u[k] = 0.25 * (u[k - 1] + u[k + 1] * (i + 2.0)) + u[k * 7 % 64]
    return u


def windows(u: Any, steps: int) -> Any:
    found = np.zeros(steps)
    for i in range(steps):
        found[i] = (u[i % 40 : i % 40 + 8] * (i + 1.5)).sum()
    return found


def stencil(u: Any, steps: int) -> Any:
    v = u.reshape(8, 8)
    for i in range(steps):
        around = v[:-2, 1:-1] + v[2:, 1:-1] + v[1:-1, :-2] + v[1:-1, 2:]
        v[1:-1, 1:-1] = (0.2 + 1 / (i + 2)) * around + v[i % 8, i * i % 8]
    return v


def matmuls(u: Any, steps: int) -> Any:
    v = x = u.reshape(8, 8)
    for i in range(steps):
        x = np.tanh(v @ x + x[i % 8] * (i + 1.5))
    return x


# name -> a function of an array and a number of steps, and about how many nodes a step has
SHAPES: dict[str, tuple[Callable[[Any, int], Any], int]] = {
    "unlike": (unlike, 10),
    "chain": (chain, 5),
    "outputs": (outputs, 4),
    "reductions": (reductions, 8),
    "items": (items, 13),
    "windows": (windows, 5),
    "stencil": (stencil, 13),
    "matmuls": (matmuls, 10),
}


def compiling() -> None:
    """Processor time a node, of traces of about so many nodes that are left as they are."""
    print("\n| program | nodes | tracing, us a node | fuse, lower and plan, us a node | tasks |\n|---|--:|--:|--:|--:|")
    for name, (function, each) in SHAPES.items():
        for wanted in OPTIONS.nodes if not OPTIONS.only or name in OPTIONS.only else ():
            with kg.override(roll=False):
                steps = wanted // each
                compiled = kg.kernel_graph(device=OPTIONS.device)(lambda u, f=function, n=steps: f(u, n))
                start = time.process_time()
                graph = compiled.graph(kg.spec((64,), np.float64))
                traced_by = time.process_time()
                plan = planned(graph)
                end = time.process_time()
            nodes = len(graph.nodes)
            alone, rest = (traced_by - start) * 1e6 / nodes, (end - traced_by) * 1e6 / nodes
            print(f"| {name} | {nodes} | {alone:.1f} | {rest:.1f} | {tasks(plan)} |", flush=True)


def planning() -> None:
    print(
        "\n| steps | fuse, lower and plan, ms | against 10 steps | tasks of the plan, bodies' too |\n|--:|--:|--:|--:|"
    )
    first = 0.0
    for steps in (10, 100, 1000):
        graph = traced(steps, 512, True)
        took = least(lambda g=graph: planned(g))
        first = first or took
        print(f"| {steps} | {took * 1e3:.2f} | {took / first:.2f} | {tasks(planned(graph))} |")


def waited(call: Callable[..., Any], *args: Any) -> Callable[[], Any]:
    def run() -> Any:
        found = call(*args)
        found.wait()
        return found

    return run


def launching() -> None:
    """The slope of time over steps, in a loop and in the plan of all steps one after another."""
    n, few, many = 8, 50, 150
    u = kg.to_device(kg.asarray(np.random.default_rng(0).random((n, n))), OPTIONS.device)
    counted = kg.kernel_graph(device=OPTIONS.device)(lambda u, steps: kg.fori_loop(0, steps, sweep, u))
    slope = (least(waited(counted, u, 20000)) - least(waited(counted, u, 10000))) / 10000
    with kg.override(roll=False):
        flat = [kg.kernel_graph(device=OPTIONS.device)(lambda u, s=s: jacobi(u.copy(), s)) for s in (few, many)]
        times = [least(waited(f, u), 200) for f in flat]
    alone = (times[1] - times[0]) / (many - few)
    per_step = len(counted.plan(u, 10).tasks[0].kernel.body.tasks)
    print(f"\nA step of {per_step} kernels of {n} x {n}: {slope * 1e6:.2f} us in a loop,")
    print(f"{alone * 1e6:.2f} us in one plan of all steps: {(slope - alone) * 1e6:+.2f} us for the loop.")


def running() -> None:
    print("\n| n | steps | rolled, ms | a call a step, ms | NumPy, ms |\n|--:|--:|--:|--:|--:|")
    one = kg.kernel_graph(device=OPTIONS.device)(lambda u: jacobi(u.copy(), 1))

    def calls(u: Any, steps: int) -> Any:
        for _ in range(steps):
            u = one(u)
        return u

    for n, steps in ((64, 1000), (512, 1000), (1024, 200)):
        host = np.random.default_rng(0).random((n, n))
        u = kg.to_device(kg.asarray(host), OPTIONS.device)
        rolled = kg.kernel_graph(device=OPTIONS.device)(lambda u, s=steps: jacobi(u.copy(), s))
        np.testing.assert_allclose(np.asarray(rolled(u)), jacobi(host.copy(), steps), rtol=1e-12)
        times = [
            least(waited(rolled, u), 3),
            least(waited(calls, u, steps), 3),
            least(lambda h=host, s=steps: jacobi(h.copy(), s), 2),
        ]
        print(f"| {n} | {steps} | " + " | ".join(f"{t * 1e3:.2f}" for t in times) + " |")


def deciding() -> None:
    """The slope of time over turns of a loop whose condition is of the values, and the time of a loop of no turns."""
    print("\nA `while` of two kernels, us a turn (and a call of no turn), by who reads the condition:\n")
    print("| n | the GPU | the host | a graph of the turn, replayed | and its condition read | jax.lax.while_loop |")
    print("|--:|--:|--:|--:|--:|--:|")
    driver = open_device(("cuda", 0)).context.driver
    for n in (64, 1 << 20):
        u = np.random.default_rng(0).random(n) + 0.5
        row = []
        for driver.conditionals in (True, False):
            f = kg.kernel_graph(device="cuda")(lambda u, turns: halved(kg, np, u, turns))
            x = kg.to_device(kg.asarray(u), "cuda")
            row.append(_by_turns(lambda turns, f=f, x=x: f(x, turns)[0].wait()))
        driver.conditionals = True
        row += [*_replayed(u), _jax(u)]
        print(f"| {n} | " + " | ".join(row) + " |")


def halved(lib: Any, xp: Any, u: Any, turns: Any) -> Any:
    return lib.while_loop(
        lambda c: (c[0].max() > 1e-300) & (c[1] < turns), lambda c: (c[0] * 0.999, c[1] + 1), (u, xp.int64(0))
    )


def counting() -> None:
    """The slope of time over the turns of loops whose turns differ."""
    print("\nTurns that differ, us a turn (and a call of no turn), by who counts them:\n")
    print("| loop, float64[64] | the GPU | the host | JAX |\n|---|--:|--:|--:|")
    driver = open_device(("cuda", 0)).context.driver
    u = np.random.default_rng(0).random(64)
    for name, loop in (("fori_loop, x / 2 + i", numbered), ("scan over rows, c / 2 + row, and its sum", summed)):
        row = []
        for driver.conditionals in (True, False):
            f = kg.kernel_graph(device="cuda")(lambda u, rows, turns, loop=loop: loop(kg, u, rows, turns))
            x = kg.to_device(kg.asarray(u), "cuda")
            row.append(_by_turns(_on_rows(f, x, lambda a: kg.to_device(kg.asarray(a), "cuda"), lambda y: y.wait())))
        driver.conditionals = True
        print(f"| {name} | " + " | ".join([*row, _jax_counting(loop, u)]) + " |")


def numbered(lib: Any, u: Any, rows: Any, turns: int) -> Any:
    return lib.fori_loop(0, turns, lambda i, x: x * 0.5 + i, u)


def summed(lib: Any, u: Any, rows: Any, turns: int) -> Any:
    return lib.scan(lambda c, row: (c * 0.5 + row, row.sum()), u, rows)[0]


def _on_rows(
    f: Callable[..., Any], x: Any, put: Callable[[Any], Any], wait: Callable[[Any], Any]
) -> Callable[[int], Any]:
    rows = {turns: put(np.ones((turns, 64))) for turns in (0, 1000, 3000)}
    return lambda turns: wait(f(x, rows[turns], turns))


def _jax_counting(loop: Callable[..., Any], u: Any) -> str:
    try:
        import jax
    except ImportError:
        return ""
    jax.config.update("jax_enable_x64", True)
    f = jax.jit(lambda u, rows, turns: loop(jax.lax, u, rows, turns))
    return _by_turns(_on_rows(f, jax.device_put(u), jax.device_put, jax.block_until_ready))


def _by_turns(call: Callable[[int], Any], few: int = 1000, many: int = 3000) -> str:
    for turns in (0, few, few):
        call(turns)
    slope = (least(lambda: call(many)) - least(lambda: call(few))) / (many - few)
    return f"{slope * 1e6:.2f} ({least(lambda: call(0), 20) * 1e6:.0f})"


def _replayed(u: Any) -> list[str]:
    """One turn as a graph of torch's that the host launches again and again; without and with a look at its flag."""
    try:
        import torch
    except ImportError:
        return ["", ""]
    turn = kg.kernel_graph(device="cuda")(lambda x, n: ((y := x * 0.999), n + 1, (y.max() > 1e-300) & (n + 1 < 1000)))
    x, n = torch.from_numpy(u).cuda(), torch.zeros((), dtype=torch.int64, device="cuda")
    turn(x, n)[2].wait()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph), kg.stream(torch.cuda.current_stream().cuda_stream):
        kept = turn(x, n)
    flag = torch.from_dlpack(kept[2])

    def replay(turns: int, look: bool) -> None:
        for _ in range(turns):
            graph.replay()
            if look and not flag.item():
                break
        torch.cuda.synchronize()

    return [_by_turns(lambda turns, look=look: replay(turns, look)) for look in (False, True)]


def _jax(u: Any) -> str:
    try:
        import jax
    except ImportError:
        return ""
    jax.config.update("jax_enable_x64", True)
    f = jax.jit(lambda u, turns: halved(jax.lax, jax.numpy, u, turns))
    x = jax.device_put(u)
    return _by_turns(lambda turns: jax.block_until_ready(f(x, turns)))


if __name__ == "__main__":
    print(machine(2, ("numpy", "llvmlite")))
    if OPTIONS.nodes:
        compiling()
        sys.exit()
    if OPTIONS.only_deciding:
        deciding()
        counting()
        sys.exit()
    tracing()
    planning()
    launching()
    running()
    if OPTIONS.device.startswith("cuda"):
        deciding()
        counting()
