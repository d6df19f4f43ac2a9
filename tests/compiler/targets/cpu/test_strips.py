"""Chains of kernels done strip by strip give the same bits as one after the other, on random programs of images."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.compiler.core.cost import CPU
from kernelgraph.compiler.pipeline import run_pipeline_stages
from kernelgraph.compiler.targets.cpu import strips
from kernelgraph.compiler.targets.cpu.strips import StripNest, join_tasks_in_strips
from kernelgraph.compiler.targets.target import cpu_vector_features
from kernelgraph.runtime.devices.cpu.device import CPUDevice, CPUExecutable
from kernelgraph.runtime.program.program import Kernel, Program
from kernelgraph.runtime.schedule.cost_model import MACHINES
from kernelgraph.runtime.schedule.schedule import plan_by_cost_model
from kernelgraph.runtime.verify.plan import require_safe_plan
from tests.counts import examples

Host = Any
STEPS: dict[str, Callable[[Host, Host], Host]] = {
    "padded": lambda a, b: np.pad(a, 2),
    "framed": lambda a, b: np.pad(a, 1),
    "down": lambda a, b: a[1:] - a[:-1],
    "across": lambda a, b: a[:, 1:] + 2 * a[:, :-1],
    "blurred down": lambda a, b: sum((1 + k) * a[k : len(a) - 6 + k] for k in range(7)),
    "blurred across": lambda a, b: sum((2 - k) * a[:, k : a.shape[1] - 4 + k] for k in range(5)),
    "both": lambda a, b: a[: len(b), : b.shape[1]] * b[: len(a), : a.shape[1]],
    "sharpened": lambda a, b: 2 * a[3:-3, 2:-2] - STEPS["blurred across"](STEPS["blurred down"](a, b), b),
    "chosen": lambda a, b: np.where(a > 0, a, 0.5 * a),
    "heavy": lambda a, b: np.tanh(a) / (1 + a * a),
    "centred rows": lambda a, b: a - a.max(axis=1, keepdims=True),
    "sums of rows": lambda a, b: a[:, :20] * a.sum(axis=1)[:, None],
    "sums of columns": lambda a, b: a - a.sum(axis=0),
    "updated": lambda a, b: updated(a),
    "whole numbers": lambda a, b: (a.astype(np.int32) // 3).astype(a.dtype),
    "upside down": lambda a, b: a[::-1],
    "every other": lambda a, b: a[::2] + a[1::2][: len(a[::2])] if len(a) % 2 == 0 else a,
    "numbered": lambda a, b: a * np.arange(len(a), dtype=a.dtype)[:, None],
    "wider": lambda a, b: a.astype(np.float64) if a.dtype == np.float32 else a.astype(np.float32),
    "halved": lambda a, b: even(a)[::2] + 3 * even(a)[1::2],
    "halved across": lambda a, b: even(a)[:, ::2] - even(a)[:, 1::2],
    "quarters": lambda a, b: mosaic([even(a)[i::2, j::2] * (1 + i + 2 * j) for i in (0, 1) for j in (0, 1)]),
    "doubled": lambda a, b: a if a.size > MOST else mosaic([a, a + 1, 2 * a, a * a]),
    "doubled down": lambda a, b: a if a.size > MOST else np.stack([a, 0.5 * a], 1).reshape(-1, a.shape[1]),
    "planes": lambda a, b: np.stack([a, a * a, 1 - a], 2)[:, :, ::-1].max(axis=2),
    "taken": lambda a, b: np.take(b.reshape(-1)[:16], whole(a), mode="clip"),
    "looked up": lambda a, b: b.reshape(-1)[:16][whole(a)],
    "sums at places": lambda a, b: added(a)[whole(a)],
}


SUMS: dict[str, Callable[[Host], Host]] = {
    "sum": lambda a: (a * a).sum(),
    "largest": lambda a: a.max(),
    "sums of rows": lambda a: a.sum(axis=1),
    "sum of columns": lambda a: a.sum(axis=0),
}


MOST = 1 << 15  # elements of an array that is made four times as large


def whole(a: Host) -> Host:
    """Small whole numbers."""
    return (np.clip(a, 0, 15) * 1).astype(np.int32)


def even(a: Host) -> Host:
    """Without the last row and column where they are odd ones."""
    return a[: len(a) // 2 * 2, : a.shape[1] // 2 * 2]


def mosaic(four: list[Host]) -> Host:
    """Each pixel of the first becomes two by two, one of each."""
    n, k = four[0].shape
    rows = [np.stack(two, 2).reshape(n, 2 * k) for two in (four[:2], four[2:])]
    return np.stack(rows, 1).reshape(2 * n, 2 * k)


def added(a: Host) -> Host:
    """At each place how much there is of it."""
    sums = np.zeros(16, a.dtype)
    np.add.at(sums, whole(a).reshape(-1), a.reshape(-1))
    return sums


def updated(a: Host) -> Host:
    made = a.copy()
    made[1:-1] = 2 * a[:-2]
    return made


def image_program(seed: int) -> tuple[Callable[..., Any], list[Host]]:
    """Some steps one after the other; some of their results are returned, and some sums."""
    rng = np.random.default_rng(seed)
    often = ["padded", "blurred down", "blurred across", "heavy"] * 3
    names = [str(rng.choice([*STEPS, *often])) for _ in range(rng.integers(3, 8))]
    picked = [tuple(map(int, rng.integers(0, i + 1, 2))) if rng.random() < 0.4 else (i, 0) for i in range(len(names))]
    results = {len(names), *map(int, rng.integers(1, len(names) + 1, rng.choice([0, 0, 1, 2])))}
    sums = [(str(rng.choice([*SUMS])), int(rng.integers(1, len(names) + 1))) for _ in range(rng.choice([0, 0, 1, 2]))]
    dtype = rng.choice([np.float32, np.float64])
    large = 3 if sums and rng.random() < 0.5 else 1
    shape = (large * int(rng.integers(50, 120)), large * int(rng.integers(40, 100)))
    x = rng.integers(-4, 5, shape).astype(dtype)

    def program(x: Host) -> Any:
        values = [x]
        for name, (i, j) in zip(names, picked, strict=True):
            small = min(values[i].shape) < 16
            values.append(values[i] + 1 if small else STEPS[name](values[i], values[j]))
        return tuple(values[i] for i in sorted(results)), tuple(SUMS[name](values[i]) for name, i in sums)

    steps = " ".join(f"{name}{picks}" for name, picks in zip(names, picked, strict=True))
    program.__name__ = f"{steps} results {sorted(results)} {sums}"
    return program, [x]


GUARD = 1 << 14  # bytes around each memory that nothing may write


def guarded(content: Host) -> tuple[Host, Callable[[], None]]:
    """A copy on a cache line, and a check that what lies around it is as it was."""
    whole = np.full(content.nbytes + 2 * GUARD, 0xAB, np.uint8)
    first = GUARD + -whole.ctypes.data % 64
    inside = slice(first, first + content.nbytes)
    whole[inside] = content.reshape(-1).view(np.uint8)

    def check() -> None:
        assert (whole[:first] == 0xAB).all() and (whole[first + content.nbytes :] == 0xAB).all()

    return whole[inside], check


def run(program: Program, arrays: list[Host], threads: bool) -> list[bytes]:
    plan = plan_by_cost_model(program, 1, "balanced", MACHINES["cpu"])
    require_safe_plan(plan)
    contents = {b: np.full(program.buffers[b].nbytes, 0xAA, np.uint8) for b in program.outputs}
    contents |= {b: np.ascontiguousarray(a) for b, a in zip(program.inputs, arrays, strict=True)}
    held = {b: guarded(content) for b, content in contents.items()}
    arena, check = guarded(np.full(plan.arena_bytes, 0xAA, np.uint8))
    memories: list[Any] = [held[b][0].ctypes.data if b in held else None for b in range(len(program.buffers))]
    executable = CPUExecutable(CPUDevice(), plan)
    with kg.override(engine="chaos" if threads else "sync"):
        for event in executable.run(memories, arena.ctypes.data, (), ()):
            event.wait()
    for one in (check, *(check for _, check in held.values())):
        one()
    return [held[b][0].tobytes() for b in program.outputs]


def joined(program: Program) -> int:
    kernels = [task.kernel for task in program.tasks if isinstance(task.kernel, Kernel)]
    return sum(isinstance(kernel.form, StripNest) for kernel in kernels)


@pytest.fixture
def join_all(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Joins whatever can be, in strips of a few rows."""
    for name, value in {"LEAST_BYTES": 1, "SCRATCH_BYTES": 1 << 13, "STRIPS": 3, "SURELY": -1e9, "OVERLAP": 0}.items():
        monkeypatch.setattr(strips, name, value)
    yield


@pytest.mark.usefixtures("join_all")
@pytest.mark.parametrize("part", range(4))
def test_random_images(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found = 0
    for seed in range(1000 * part, 1000 * part + examples(60)):
        function, arrays = image_program(seed)
        graph = kg.kernel_graph(device="fake")(function).graph(*arrays)
        with monkeypatch.context() as apart:
            apart.setattr(strips, "LEAST_BYTES", 1 << 60)
            whole = run_pipeline_stages(graph, "cpu").program
        program = join_tasks_in_strips(whole, CPU, cpu_vector_features())
        found += joined(program)
        expected = run(whole, arrays, threads=False)
        for threads in (False, True):
            assert run(program, arrays, threads) == expected, (seed, function.__name__)
    assert found >= examples(60) // 6


def test_pads_and_blurs_are_one_task_of_less_memory() -> None:
    def blur(x: Host) -> Host:
        x = np.pad(x, 2)
        x = x[4:] + 4 * x[3:-1] + 6 * x[2:-2] + 4 * x[1:-3] + x[:-4]
        return x[:, 4:] + 4 * x[:, 3:-1] + 6 * x[:, 2:-2] + 4 * x[:, 1:-3] + x[:, :-4]

    x = np.random.default_rng(0).random((1024, 1024), np.float32)
    program = run_pipeline_stages(kg.kernel_graph(device="fake")(blur).graph(x), "cpu").program
    assert len(program.tasks) == joined(program) == 1
    np.testing.assert_array_equal(run(program, [x], threads=True)[0], blur(x).tobytes())
    assert program.tasks[0].units >= strips.STRIPS


def test_a_result_that_is_read_again_and_its_maximum_are_one_task() -> None:
    def both(x: Host) -> Host:
        y = np.pad(x, 1)
        y = y[2:] + 2 * y[1:-1] + y[:-2]
        y = y[:, 2:] + 2 * y[:, 1:-1] + y[:, :-2]
        return y, y.max()

    x = np.random.default_rng(0).integers(0, 9, (1024, 1024)).astype(np.float32)
    program = run_pipeline_stages(kg.kernel_graph(device="fake")(both).graph(x), "cpu").program
    assert joined(program) == 1 and len(program.tasks) == 2  # the other takes the largest of all parts
    y, largest = both(x)
    assert run(program, [x], threads=True) == [y.tobytes(), largest.tobytes()]
