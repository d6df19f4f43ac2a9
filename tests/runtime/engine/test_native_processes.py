"""The native engine in processes of its own: any number of threads, exit, fork, Ctrl-C, no engine at all."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest


def run_script(text, threads=2, timeout=300, **environment):
    header = """
        import os, random, signal, sys, threading, time
        from dataclasses import replace
        import numpy as np
        from tests.processes import interrupt
        from tests.runtime.cpu_plans import hash_reference, random_plan
        from tests.runtime.native_runs import (
            Arrays, busy_workers, check_random_plan, check_rest, host_plan, slow_plan, slow_task, start, start_blocked
        )
        from kernelgraph.runtime.engine import engine as native
        from kernelgraph.runtime.devices.cpu.device import CPUDevice
        from kernelgraph.runtime.core.errors import KernelGraphError
        from kernelgraph.runtime.program.plan import Launch, Plan
        from kernelgraph.runtime.program.program import Buffer, Program
        device = CPUDevice(0)
    """
    script = textwrap.dedent(header) + textwrap.dedent(text)
    given = {**os.environ, "KERNELGRAPH_THREADS": str(threads), "PYTHONPATH": os.pathsep.join(sys.path), **environment}
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=timeout, env=given)


@pytest.mark.parametrize("threads", [1, 6])
def test_any_number_of_threads(threads):
    """With six threads on few cores, threads are stopped at any point: what races will show."""
    done = run_script(
        """
        assert native.native_engine_thread_count() == int(os.environ["KERNELGRAPH_THREADS"])
        for seed in range(150):
            check_random_plan(device, seed, random.choice(["async", "async", "chaos"]))
        rng = random.Random(0)
        tasks = [slow_task(b, 1, n=64) for b in range(8) for _ in range(5)]
        buffers = [Buffer(8 * 64, "output") for _ in range(8)]
        program = Program(tuple(buffers), tuple(tasks), (), tuple(range(8)))
        many = random_plan(rng, program, 8)
        executable = device.prepare(many)
        expected = [np.ones(64, np.int64)] * 8
        hash_reference(program, expected := [e.copy() for e in expected])
        for turn in range(600):
            arrays = Arrays(device, many, [np.ones(64, np.int64)] * 8)
            for event in arrays.run(executable):
                event.wait()
            assert all((a == b).all() for a, b in zip(arrays.views, expected))
        check_rest()
        print(native.engine_of_process().workers)
        """,
        threads,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(max(1, threads - 1))]


def test_urgent_streams_go_first():
    done = run_script(
        """
        tasks = tuple(replace(slow_task(0, 1, tag=t), name=f"t{t}") for t in range(1, 5))
        program = Program((Buffer(8, "output"),), tasks, (), (0,))
        steps = tuple(Launch(s, s) for s in range(4))
        plan = Plan(program, steps, 4, 1, (None,), 0, (0,), frozenset((2,)))  # races, but for the one worker
        with busy_workers(device):
            arrays, (event,) = start(device, plan)
        while not event.query():
            pass
        order, left = [], int(arrays.views[0][0])
        for _ in range(4):
            order.append(left % 43)
            left //= 43
        print(*reversed(order))
        """,
        threads=1,
    )
    assert done.stdout == "3 1 2 4\n", done.stderr


def test_the_interpreter_exits_with_work_in_flight():
    done = run_script(
        """
        kept = [start(device, slow_plan(200_000_000)) for _ in range(50)]
        kept += [start(device, host_plan(["slow", "copy"], 1000.0))]
        print("leaving")
        """,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "leaving\n", "")


def test_a_forked_child_has_an_engine_of_its_own():
    done = run_script(
        """
        arrays, (event,) = start_blocked(device)
        executable = device.prepare(slow_plan(1, tag=9))
        idle, (before,) = start(device, slow_plan(1, tag=9))
        before.wait()
        child = os.fork()
        if child == 0:
            signal.alarm(120)  # should it hang
            before.wait()
            try:
                event.wait()
            except KernelGraphError as error:
                print("child:", error, flush=True)
            try:
                (late,) = idle.run(executable, ((0, event),))
                late.wait()
            except KernelGraphError as error:
                print("child:", error, flush=True)
            again, (event,) = start(device, slow_plan(1, tag=8))
            event.wait()
            more = Arrays(device, executable.plan, [np.zeros(1, np.int64)])
            more.run(executable)[0].wait()
            print(again.views[0][0], more.views[0][0], native.engine_of_process().workers, flush=True)
            sys.exit(0)
        pid, status = os.waitpid(child, 0)
        arrays.views[1][0] = 1
        event.wait()
        print(status, arrays.views[0][0])
        """
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 4, done.stdout + done.stderr
    assert all("in flight when the process forked" in line for line in lines[:2])
    assert lines[2:] == ["8 9 1", "0 1"]


def test_ctrl_c_interrupts_a_wait_and_leaves_the_work():
    done = run_script(
        """
        arrays, (event,) = start_blocked(device)
        small, (other,) = start(device, slow_plan(10, tag=7))
        other.wait()
        interrupt()
        try:
            event.wait()
            print("not interrupted")
        except KeyboardInterrupt:
            print("interrupted", event.query())
        arrays.views[1][0] = 1
        event.wait()
        print(arrays.views[0][0])
        """,
        threads=3,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["interrupted False", "1"], done.stdout + done.stderr


def test_without_a_native_engine_plans_run_serially():
    done = run_script(
        """
        native._failed = "no engine here"
        assert native.engine_of_process() is None and native.why_no_native_engine() == "no engine here"
        for seed in range(20):
            check_random_plan(device, seed, "async")
        arrays, (event,) = start(device, host_plan(["slow", "copy"], 1000.0))
        event.wait()
        device.synchronize()
        print(arrays.views[0][0])
        """
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")
