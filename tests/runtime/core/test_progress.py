"""The progress bar: after a second, in a terminal, by whichever library is there; else silent."""

from __future__ import annotations

import io
import sys
from types import SimpleNamespace
from typing import ClassVar

import pytest

from kernelgraph.runtime.core import progress as module
from kernelgraph.runtime.core.progress import progress_counter


class Screen(io.StringIO):
    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


class Bar:
    """tqdm's face."""

    made: ClassVar[list[Bar]] = []

    def __init__(self, total, desc, leave):
        self.total, self.desc, self.n, self.open = total, desc, 0, True
        Bar.made.append(self)

    def update(self, more):
        self.n += more

    def close(self):
        self.open = False


@pytest.fixture
def bars(monkeypatch):
    monkeypatch.setattr(Bar, "made", [])
    monkeypatch.setitem(sys.modules, "tqdm", SimpleNamespace(tqdm=Bar))
    return Bar.made


def run(monkeypatch, total: int, seconds: float, terminal: bool) -> str:
    """Output of `total` steps, each of which takes that long."""
    screen, now = Screen(terminal), [0.0]
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    with progress_counter(total, "compiling kernels") as count:
        for _ in range(total):
            now[0] += seconds
            count()
    return screen.getvalue()


def test_a_long_wait_is_shown(monkeypatch, bars):
    run(monkeypatch, 10, 0.3, terminal=True)
    (bar,) = bars
    assert (bar.total, bar.desc, bar.n, bar.open) == (10, "compiling kernels", 10, False)


@pytest.mark.parametrize(("total", "seconds", "terminal"), [(10, 0.05, True), (10, 5.0, False), (1, 5.0, True)])
def test_quiet(monkeypatch, bars, total, seconds, terminal):
    assert run(monkeypatch, total, seconds, terminal) == ""
    assert bars == []


def test_rich_where_there_is_no_tqdm(monkeypatch):
    pytest.importorskip("rich")
    monkeypatch.setitem(sys.modules, "tqdm", None)
    assert "compiling kernels" in run(monkeypatch, 10, 0.3, terminal=True)


def test_without_either(monkeypatch):
    for name in ("tqdm", "rich.progress"):
        monkeypatch.setitem(sys.modules, name, None)
    assert run(monkeypatch, 10, 0.3, terminal=True) == ""


def test_it_is_closed_when_the_work_fails(monkeypatch, bars):
    monkeypatch.setattr(sys, "stderr", Screen(True))
    monkeypatch.setattr(module, "DELAY", -1.0)
    with pytest.raises(KeyError), progress_counter(3, "x") as count:
        count()
        raise KeyError
    assert not bars[0].open
