"""The line about a long compile: in a terminal and in a notebook, gone at the end; silent everywhere else."""

from __future__ import annotations

import io
import sys
import threading
from types import SimpleNamespace

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.dsl.jit import specializations
from kernelgraph.runtime.core import progress as module
from kernelgraph.runtime.core.progress import progress_counter, progress_phase


class Screen(io.StringIO):
    """A terminal, or a pipe. written: set when there is something on it."""

    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self.terminal, self.written = terminal, threading.Event()

    def isatty(self) -> bool:
        return self.terminal

    def flush(self) -> None:
        self.written.set()

    def shows(self, text: str) -> bool:
        while text not in self.getvalue():
            self.written.clear()
            assert self.written.wait(20), self.getvalue()
        return True


@pytest.fixture
def screen(monkeypatch):
    made = Screen(True)
    ours = {"stderr": made, "modules": sys.modules, "_current_frames": sys._current_frames}
    monkeypatch.setattr(module, "sys", SimpleNamespace(**ours))  # pytest puts its own stderr between fixture and test
    monkeypatch.setattr(module, "DELAY", 0.001)
    monkeypatch.setattr(module, "BETWEEN", 0.001)
    return made


def after_the_line(screen: Screen) -> str:
    """What is left to be read: what was written after the last return of the carriage."""
    return screen.getvalue().rpartition("\r")[2]


def test_a_long_compile_is_told(screen):
    with progress_phase("compiling f"), progress_phase("tracing"):
        assert screen.shows("compiling f; tracing, 0 s")
    assert after_the_line(screen) == ""
    assert not module._phases


def test_things_done_are_counted(screen):
    with progress_phase("compiling f"), progress_counter(3, "kernels") as done:
        done()
        threading.Thread(target=done).start()
        assert screen.shows("compiling f; kernels, 2 of 3, 0 s")
    assert after_the_line(screen) == ""


def test_it_goes_when_the_work_fails(screen):
    with pytest.raises(KeyError), progress_phase("compiling f"):
        assert screen.shows("compiling f")
        raise KeyError
    assert after_the_line(screen) == "" and not module._phases


def test_a_call_tells_of_itself(screen, monkeypatch):
    def trace_slowly(*args, **options):
        assert screen.shows("compiling slow; tracing")
        return trace_function(*args, **options)

    def slow(x):
        return np.exp(x) * 2

    trace_function = specializations.trace_function
    monkeypatch.setattr(specializations, "trace_function", trace_slowly)
    kg.kernel_graph(slow, device="cpu", untraceable="refuse")(np.ones(3)).wait()
    assert after_the_line(screen) == ""


def test_a_notebook_is_told(screen, monkeypatch):
    screen.terminal = False
    shell = SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    with progress_phase("compiling f"):
        assert screen.shows("compiling f")


def quiet(screen: Screen) -> bool:
    """Whether the work starts nothing that could write."""
    before = threading.active_count()
    with progress_phase("compiling f"), progress_counter(3, "kernels") as done:
        done()
        started = threading.active_count() - before
    return started == 0 and screen.getvalue() == ""


def test_pipes_and_files_are_not_written_to(screen):
    screen.terminal = False
    assert quiet(screen)


def test_a_setting_silences_it(screen):
    with kg.override(progress=False):
        assert quiet(screen)
    assert not quiet(screen)


def test_without_a_standard_error_stream(monkeypatch):
    monkeypatch.setattr(module.sys, "stderr", None)
    with progress_phase("compiling f"):
        pass


def test_other_threads_are_silent(screen):
    with progress_phase("compiling f"):
        other = threading.Thread(target=lambda: quiet(screen))
        other.start()
        other.join()
        assert module._phases == ["compiling f"]


def test_a_short_compile_is_not_told(screen, monkeypatch):
    monkeypatch.setattr(module, "DELAY", 3600.0)
    with progress_phase("compiling f"):
        pass
    assert screen.getvalue() == ""


def test_a_debugger_is_left_alone(screen):
    """What a debugger's frame calls, such as its prompt, has no line written over it."""
    found = []
    namespace = {"__name__": "bdb", "screen": screen, "found": found}
    source = (
        "def interaction():\n    import time\n    time.sleep(0.05)\n    before = screen.getvalue()\n"
        "    time.sleep(0.05)\n    found.append(screen.getvalue() == before)\n"
    )
    exec(source, namespace)
    with progress_phase("compiling f"):
        namespace["interaction"]()
        assert screen.shows("compiling f")
    assert found == [True]
