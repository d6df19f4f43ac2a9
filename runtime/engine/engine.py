"""The engine: native threads run streams of steps. They never take the interpreter lock.

`engine_of_process()` gives the process' one engine, compiled at first use (a warm start loads it from the disk cache)
and None where it cannot be built; callers then run plans serially. Its threads start with the first plan that needs
them: one a core less the caller's, at least one; one in reserve, that works while a caller sleeps; and a Python thread
a core for the steps that need Python, most of which release the interpreter lock while they compute. They leave at
exit, when nothing is in flight, or after a second the step in hand is done; after a fork the child makes an engine of
its own.

Linux on x86-64 is what is tested. Nothing here is specific to it but for the calls of POSIX threads and clocks.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import itertools
import math
import os
import platform
import threading
import time
from functools import cache
from typing import Any, Protocol

from ..codegen import elf_loader, llvm_jit, word_language
from ..core.disk_cache import sha256_digest
from ..core.errors import CompileError
from ..core.settings import allowed_cores, settings
from . import unread_errors  # noqa: F401  # tells at exit, after the engine has stopped
from .deferred_interrupt import SIGNALS_AT, call_with_interrupt_deferred
from .words import calls as native_calls
from .words import errors as native_poison
from .words import loops as native_loops
from .words import python_calls as native_python_calls
from .words import queues as native_queues
from .words import records as native_records
from .words import signals
from .words import streams as native_streams
from .words.records import (
    ACTIVE,
    BEGUN,
    CHAOS,
    ENGINE_BYTES,
    HOST,
    PARKED,
    SIGNALS,
)

HAPPENED, PYTHON_STEP, BROKEN_OFF = 1, 2, 3  # what a native wait may answer; 0: the time is over
TEXTS = (native_queues, native_poison, signals, native_streams, native_calls, native_loops, native_python_calls)
ENTRIES = (
    "set_up_native_engine",
    "submit_native_run",
    "wait_for_native_event",
    "take_native_stream_for_python",
    "finish_native_step_of_python",
    "wake_python_from_native_thread",
    "stop_native_threads",
    "run_native_plan_inline",
    "run_native_plan_from_python",
    "native_direct_call_from_python",
    "run_native_worker_thread",
    "run_native_reserve_thread",
    "run_native_loop",
    "run_native_branch",
    "record_native_event",
    "set_native_call_settings",
    "call_decorated_function_from_python",
    "compute_native_numbers",
    "make_native_object",
    "test_native_item_types",
)
_WORD = ctypes.c_uint64
EXIT_SECONDS = 1.0  # for so long the interpreter's end waits for work in flight


class RunOnEngine(Protocol):
    """A run, as the engine keeps it; see `engine.run`."""

    lost: bool
    record: Any

    @property
    def released(self) -> bool: ...

    def do(self, task: int) -> int:
        """Do a task that needs Python; the number of its error, or 0."""
        ...

    def settle(self) -> None: ...

    def wait(self, goal: int, needs: int) -> None: ...


def native_engine_thread_count() -> int:
    """The threads that work on plans, the caller's included. The setting, or one for each core that we may use."""
    return settings.threads or _engine_cores_allowed_by_system()


@cache
def _engine_cores_allowed_by_system() -> int:
    """By this process' affinity and its container's quota (Linux, control groups version 2)."""
    count = allowed_cores()
    with contextlib.suppress(OSError, ValueError):
        with open("/sys/fs/cgroup/cpu.max") as file:
            quota, period = file.read().split()
        count = min(count, max(1, math.ceil(int(quota) / int(period))))  # "max": no quota, no integer
    return count


def allocate_aligned_words(count: int) -> tuple[Any, int, memoryview]:
    """Zeroed memory, aligned to 64 bytes: its owner, its address, and it as 64-bit words."""
    owner = (ctypes.c_char * (8 * count + 64))()
    skip = -ctypes.addressof(owner) % 64
    view = memoryview(owner).cast("B")[skip : skip + 8 * count].cast("Q")
    return owner, ctypes.addressof(owner) + skip, view


class EngineFunctions:
    """The engine's functions, as ctypes calls. `inline` keeps the interpreter lock: it is over in microseconds."""

    def __init__(self) -> None:
        sources = [word_language.word_module_source_text(m) for m in (word_language, native_records, *TEXTS)]
        self.code = code = llvm_jit.compile_llvm_ir_lazily(
            sha256_digest("engine", *sources, *ENTRIES, word_language.HEAD, word_language.TUPLE_AT),
            lambda: word_language.translate_word_language_to_llvm(TEXTS, ENTRIES, platform.machine()),
            "engine",
        )
        word, text = _WORD, ctypes.c_char_p
        self.setup = code.function("set_up_native_engine", None, word)
        self.submit = code.function("submit_native_run", None, word, word, word, word, text, word, gil=True)
        self.wait = code.function("wait_for_native_event", word, *[word] * 8)
        self.next_for_python = code.function("take_native_stream_for_python", word, word, word, word, word)
        self.done_by_python = code.function("finish_native_step_of_python", None, word, word, word)
        self.nudge = code.function("wake_python_from_native_thread", None, word)
        self.stop = code.function("stop_native_threads", None, word)
        self.record_native_event = code.function("record_native_event", None, *[word] * 4, gil=True)
        self.inline_unlocked = code.function("run_native_plan_inline", word, word, text)
        self.inline = code.function("run_native_plan_from_python", None, word, text, gil=True)
        self.worker = code.functions["run_native_worker_thread"]
        self.reserve = code.functions["run_native_reserve_thread"]
        self.direct = code.functions["native_direct_call_from_python"]
        self.set_call_settings = code.function("set_native_call_settings", None, word, gil=True)
        self.call_decorated = code.functions["call_decorated_function_from_python"]
        self.compute_numbers = code.functions["compute_native_numbers"]
        self.make_object = code.functions["make_native_object"]
        self.test_item_types = code.functions["test_native_item_types"]
        self.run_loop = code.functions["run_native_loop"]
        self.run_branch = code.functions["run_native_branch"]


class NativeEngine:
    """Native threads and what they share. Made by `engine_of_process()`."""

    def __init__(self, native: EngineFunctions) -> None:
        self.native = native
        self._owner, self.address, self._words = allocate_aligned_words(ENGINE_BYTES // 8)
        self._words[SIGNALS // 8] = SIGNALS_AT
        native.setup(self.address)
        self.numbers = itertools.count(1)
        self.latest = 0  # the number of the latest run
        self.causes = itertools.count(1)
        self.runs: dict[int, RunOnEngine] = {}  # started and, as far as is known, not released; oldest first
        self.free_promises: list[Any] = []  # records of promises that nobody has any more
        self.stopped = False
        self._threads: list[int] = []
        self._reserve = 0
        self._python: list[threading.Thread] = []
        self._starting = threading.Lock()

    @property
    def parked_workers(self) -> int:
        return self._words[PARKED // 8]

    @property
    def begun_and_ended_runs(self) -> tuple[int, int]:
        """How many runs have begun and not ended, and how many have ever begun."""
        return self._words[ACTIVE // 8], self._words[BEGUN // 8]

    @property
    def workers(self) -> int:
        return len(self._threads)

    def set_chaos_mode(self, on: bool) -> None:
        """Random delays, and any ready stream first."""
        self._words[CHAOS // 8] = on

    def start(self) -> bool:
        """Start the native threads, once; whether there are any."""
        if not self._threads and not self.stopped:
            with self._starting:
                if not self._threads and not self.stopped:
                    wanted = max(1, native_engine_thread_count() - 1)
                    started = (self._start_native_thread(self.native.worker) for _ in range(wanted))
                    self._threads = list(itertools.takewhile(bool, started))
                    if native_engine_thread_count() > 1:
                        self._reserve = self._start_native_thread(self.native.reserve)
                    self.stopped = not self._threads
        return not self.stopped

    def start_python_threads(self) -> None:
        """Start the threads that do the steps that need Python, once."""
        if not self._python:
            with self._starting:
                if not self._python:
                    threads = [
                        threading.Thread(target=self._serve_python_steps, daemon=True)
                        for _ in range(native_engine_thread_count())
                    ]
                    for number, thread in enumerate(threads):
                        thread.name = f"kernelgraph {number}"
                        thread.start()
                    self._python = threads

    def _start_native_thread(self, life: int) -> int:
        """A new thread, or 0 where the system allows no more."""
        import signal

        create = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, _WORD)(
            elf_loader.resolve_c_function_addresses(["pthread_create"], "the engine")["pthread_create"]
        )
        thread = ctypes.c_uint64()
        # New threads take over the mask: signals stay with Python's threads.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            error = create(ctypes.addressof(thread), None, life, self.address)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return 0 if error else thread.value

    def do_python_step(self, run: int = 0, needs: int = 0) -> bool:
        """Do one step of Python's that `run` needs; for 0 wait for any. False: there is none, or none any more."""
        return call_with_interrupt_deferred(lambda: self._do_python_step(run, needs))  # a step that is taken is done

    def _do_python_step(self, run: int, needs: int) -> bool:
        answer = (_WORD * 2)()
        stream = self.native.next_for_python(self.address, ctypes.addressof(answer), run, needs)
        if stream:
            failed = self.runs[answer[0]].do(answer[1])
            self.native.done_by_python(self.address, stream, failed)
        return bool(stream)

    def nudge(self) -> None:
        """A thread that helped leaves. What it may have left of Python's steps goes to the Python thread."""
        if self._words[HOST // 8]:
            self.native.nudge(self.address)

    def _serve_python_steps(self) -> None:
        while self.do_python_step():
            pass

    def drain(self, seconds: float) -> None:
        """Wait for what is in flight, but no longer than that."""
        until = time.monotonic() + seconds
        while any(not run.released and not run.lost for run in list(self.runs.values())) and time.monotonic() < until:
            time.sleep(0.001)

    def stop(self) -> None:
        """Let all threads leave, and wait for them."""
        if self.stopped:
            return
        self.stopped = True
        self.native.stop(self.address)
        join = ctypes.CFUNCTYPE(ctypes.c_int, _WORD, ctypes.c_void_p)(
            elf_loader.resolve_c_function_addresses(["pthread_join"], "the engine")["pthread_join"]
        )
        for thread in filter(None, (*self._threads, self._reserve)):
            join(thread, None)
        until = time.monotonic() + EXIT_SECONDS  # a long step of Python's own does not hold up the exit
        for python in self._python:
            if python is not threading.current_thread():
                python.join(max(0.0, until - time.monotonic()))


_engine: NativeEngine | None = None
_native: EngineFunctions | None = None
_failed: str | None = None
_making = threading.Lock()


def native_engine_functions() -> EngineFunctions | None:
    """The native functions, or None where they cannot be built; `why_no_native_engine` says why."""
    global _native, _failed
    if _native is None and _failed is None:
        with _making:
            if _native is None and _failed is None:
                try:
                    _native = EngineFunctions()
                except (CompileError, OSError, ImportError, SyntaxError, KeyError) as error:
                    _failed = f"{type(error).__name__}: {error}"
    return _native


def engine_of_process() -> NativeEngine | None:
    """The process' engine, or None."""
    global _engine
    if _engine is None and (found := native_engine_functions()) is not None:
        with _making:
            if _engine is None:
                _engine = NativeEngine(found)
    return _engine


def why_no_native_engine() -> str | None:
    """Why there is no native engine, or None if there is."""
    native_engine_functions()
    return _failed


@atexit.register
def _stop_engine_at_exit() -> None:
    if _engine is not None:
        _engine.drain(EXIT_SECONDS)
        _engine.stop()


def _forget_engine_in_forked_child() -> None:
    """The child has none of the threads: what was in flight is lost, and a new engine comes with the next plan."""
    global _engine, _making
    _making = threading.Lock()
    if _engine is not None:
        for run in list(_engine.runs.values()):
            run.lost = True
        _engine.stopped = True
        _engine = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_engine_in_forked_child)
