"""Objects that outlive the interpreter's modules, whose names are None by then, die quietly."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

import kernelgraph.runtime.core.host_pool as pool
import kernelgraph.runtime.core.recycling as recycling
import kernelgraph.runtime.engine.run as native_run
from kernelgraph.runtime.engine.engine import native_engine_functions


@pytest.fixture
def complaints(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What Python says of errors in `__del__`."""
    found: list[Any] = []
    monkeypatch.setattr("sys.unraisablehook", found.append)
    return found


def test_large_blocks(monkeypatch: pytest.MonkeyPatch, complaints: list[Any]) -> None:
    block = pool.HostMemoryPool().allocate(8 << 20)
    monkeypatch.setattr(recycling, "sys", None)
    del block
    gc.collect()
    assert complaints == []


@pytest.mark.skipif(native_engine_functions() is None, reason="the engine cannot be built here")
def test_runs(monkeypatch: pytest.MonkeyPatch, complaints: list[Any]) -> None:
    run = native_run.NativeRun.__new__(native_run.NativeRun)
    run.lost = False
    monkeypatch.setattr(native_run, "e", None)
    del run
    gc.collect()
    assert complaints == []


def test_the_interpreter_ends_in_silence() -> None:
    """Its modules are emptied while C code holds them, the latest imported first; then the last blocks die."""
    script = """
        import ctypes
        from kernelgraph.runtime.core import errors, host_pool as pool
        from kernelgraph.runtime.engine import run as native_run
        import numpy as np
        import kernelgraph as kg

        for module in (errors, native_run, pool):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(module))
        both = kg.kernel_graph(device="cpu")(lambda x: (np.exp(x), np.sort(x)))
        mine, x = pool.HostMemoryPool(), np.ones(1 << 20, np.float32)
        blocks = [mine.allocate(n) for n in (64, 300 << 10, 8 << 20)]
        errors.held = [*blocks, both(x), both(kg.asarray(x, device="cpu"))]
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.skipif(native_engine_functions() is None, reason="the engine cannot be built here")
@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ("f(bad)", 1),
        ("kept = f(bad), f(np.eye(600)), f(bad)", 2),
        ("f(bad); kg.waitall()", 1),
        ("g(f(bad))", 1),
        ("r = f(bad)\ntry: r.wait()\nexcept np.linalg.LinAlgError: pass", 0),
        ("r = g(f(bad))\ntry: r.wait()\nexcept np.linalg.LinAlgError: pass", 0),
        ("r = f(bad); kg.waitall()\ntry: float(r[0, 0])\nexcept np.linalg.LinAlgError: pass", 0),
        ("f(np.eye(600))", 0),
    ],
)
def test_errors_that_nobody_has_seen_are_told_at_the_end(lines: str, told: int, tmp_path: Path) -> None:
    program = f"""
import numpy as np
import kernelgraph as kg

@kg.kernel_graph(device="cpu")
def f(x):
    y = x + 0
    return np.linalg.inv(y)

g = kg.kernel_graph(device="cpu")(lambda x: x + 1)
bad = np.zeros((600, 600))
{lines}
"""
    file = tmp_path / "dropped.py"
    file.write_text(program)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run([sys.executable, file], capture_output=True, text=True, timeout=60, env=environment)
    assert ended.returncode == 0
    found = ended.stderr.splitlines()
    assert len(found) == told, ended.stderr
    assert all("dropped.py:8" in line and "LinAlgError: Singular matrix" in line for line in found), ended.stderr
