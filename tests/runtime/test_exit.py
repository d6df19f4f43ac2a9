"""Objects that outlive the interpreter's modules, whose names are None by then, die quietly."""

from __future__ import annotations

import gc
from typing import Any

import pytest

import kernelgraph.runtime.native_run as native_run
import kernelgraph.runtime.pool as pool
from kernelgraph.runtime.native import native


@pytest.fixture
def complaints(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What Python says of errors in `__del__`."""
    found: list[Any] = []
    monkeypatch.setattr("sys.unraisablehook", found.append)
    return found


def test_large_blocks(monkeypatch: pytest.MonkeyPatch, complaints: list[Any]) -> None:
    block = pool.Pool().allocate(8 << 20)
    monkeypatch.setattr(pool, "LARGE", None)
    del block
    gc.collect()
    assert complaints == []


@pytest.mark.skipif(native() is None, reason="the engine cannot be built here")
def test_runs(monkeypatch: pytest.MonkeyPatch, complaints: list[Any]) -> None:
    run = native_run.Run.__new__(native_run.Run)
    run.lost = False
    monkeypatch.setattr(native_run, "e", None)
    del run
    gc.collect()
    assert complaints == []
