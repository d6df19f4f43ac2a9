"""`kg.profile()`: a block of a program in; when each kernel, copy, wait and phase of the host ran, out.

Phases are found by putting measuring methods in the place of the ordinary ones for the time of the block: a program
that is not profiled pays nothing.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from ...runtime.core import profile as recording
from ...runtime.core.perfetto import chrome_trace_of_profile
from ...runtime.core.profile import HOST, MemorySample, ProfileRecorder, Span
from ...runtime.core.readable_text import Text, shorten_printed_lines
from ...runtime.core.settings import settings
from ..array import devices
from ..array.in_flight import waitall
from ..core.context import context
from ..core.errors import OptionError, user_line
from ..core.pytree import flatten
from ..jit.kernel_graph import KernelGraph, begin_calls_natively
from ..jit.specializations import CompiledProgram, Specializations


class Profile:
    """What `with kg.profile() as p:` gives; complete after the block.

    It holds the arguments of the first call of each kind (shapes, dtypes) of each function, which `report` needs.

    Attributes
    ----------
    spans
        Spans by their start.
    memory
        What each device held after each call.

    Examples
    --------
    >>> f = kg.kernel_graph(lambda x: x + 1)
    >>> with kg.profile() as p:
    ...     x = f(np.ones(9))
    >>> "kernel" in {span.kind for span in p.spans}
    True
    """

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.memory: list[MemorySample] = []
        self.calls: dict[KernelGraph, dict[Hashable, ProfiledCall]] = {}  # by what kind of call it is

    def table(self) -> str:
        """For each kind and name how often it ran, and its microseconds. These are in all, the mean, the least and the
        most."""
        return Text(recording.format_profile_table(self.spans, self.memory))

    def save(self, path: Any) -> None:
        """Write a trace that https://ui.perfetto.dev and chrome://tracing open.

        It has what was measured, with an arrow to each task from those of other streams that it waited for, and what
        was predicted, as processes of their own."""
        import json

        spans, waits = import_module(VIEW, __package__).spans_with_predicted_times(self.calls, self.spans)
        with open(path, "w", encoding="utf-8") as file:
            json.dump(chrome_trace_of_profile(spans, waits, self.memory), file)

    def report(self, path: Any = None) -> list[Any]:
        """A report of each kind of call of each function, with the times that were measured.

        Of a function, the first 16 kinds: calls with arrays of other shapes or dtypes.

        Parameters
        ----------
        path : optional
            Where one page for all of them goes.
        """
        reports: list[Any] = import_module(VIEW, __package__).reports_of_profiled_calls(self.calls, self.spans, path)
        return reports

    def __str__(self) -> str:
        return self.table()

    def _repr_html_(self) -> str:
        """What a notebook shows: a picture, and the table below it."""
        html: str = import_module(VIEW, __package__).profile_html(self.spans, self.table())
        return html

    def __repr__(self) -> str:
        return shorten_printed_lines(self.table().splitlines())


ProfiledCall = tuple[tuple[Any, ...], dict[str, Any]]
MOST_KINDS = 16
VIEW = "..inspection.views"  # what draws stands above this folder, and is loaded when somebody looks

_one = threading.Lock()


@contextmanager
def profile() -> Iterator[Profile]:
    """Record what runs within the block, in any thread. That is each kernel, copy and wait of each stream, and the
    host's phases (call, in NumPy, dispatch, trace, plan, compile, launch, wait). Leaving the block waits for all that
    it started.

    On a GPU the times are those of events around each step; replayed graphs run on streams meanwhile, since a graph's
    steps cannot be timed one by one. On the CPU the engine's streams note their times; plans not worth a worker run
    step by step on the caller's thread. A call's dependences and streams are the same as without a profile, and plans
    are not tuned.

    Returns
    -------
    context manager
        A context manager, which gives a `kg.Profile`.

    Raises
    ------
    OptionError
        Where a profile is on already.

    Examples
    --------
    >>> f = kg.kernel_graph(lambda x: np.exp(x))
    >>> with kg.profile() as p:
    ...     x = f(np.ones(9))
    >>> len(p.spans) > 2, "exp" in p.table()
    (True, True)
    """
    if not _one.acquire(blocking=False):
        raise OptionError("a profile is on already; leave its block first")
    found, before = Profile(), settings.engine
    recorder = ProfileRecorder()
    try:
        with _record_spans_of_profiled_block(recorder, found):
            settings.engine, recording.active = "profile", recorder
            try:
                yield found
            finally:
                settings.engine, recording.active = before, None
        waitall()
        found.spans, found.memory = recorder.finish(), recorder.samples
        found.spans += profile_spans_of_dispatch(found.spans)
        found.spans.sort(key=lambda s: (s.start, -s.end))
    finally:
        _one.release()


def profile_spans_of_dispatch(spans: list[Span]) -> list[Span]:
    """The time from the start of each call to the first phase within it: what to run is looked up, guards included."""
    made: list[Span] = []
    latest: dict[str, Span] = {}
    for span in spans:
        if span.process != HOST:
            continue
        call = latest.get(span.track)
        if span.kind == "call":
            latest[span.track] = span
        elif call is not None and call.start <= span.start <= call.end:
            made.append(Span("dispatch", call.name, call.start, span.start, HOST, span.track, call.line))
            del latest[span.track]
    return made


# the methods that are measured, and the phase that each is
def _compile_phases_to_profile() -> list[tuple[Any, str, str, Callable[..., tuple[str, str]]]]:
    def profiled_name_and_line(graph: Any, *_: Any, **__: Any) -> tuple[str, str]:
        return graph._name, user_line()

    def profiled_name_of_specializations(versions: Any, *_: Any) -> tuple[str, str]:
        return versions.name, ""

    def profiled_name_of_program(compiled: Any, *_: Any) -> tuple[str, str]:
        return compiled.program.name, ""

    def profiled_line_of_wait(*_: Any, **__: Any) -> tuple[str, str]:
        return "", user_line()

    return [
        (KernelGraph, "__call__", "call", profiled_name_and_line),
        (KernelGraph, "_call_in_numpy", "in NumPy", profiled_name_and_line),
        (Specializations, "_trace_for_arguments", "trace", profiled_name_of_specializations),
        (Specializations, "compiled", "plan", profiled_name_of_specializations),
        (CompiledProgram, "make_ready", "compile", profiled_name_of_program),
        *((kind, name, "wait", profiled_line_of_wait) for kind, name in _wait_methods_to_profile()),
    ]


def _wait_methods_to_profile() -> Iterator[tuple[Any, str]]:
    """What the host waits for."""
    from ...runtime.engine.run import EngineRunEvent

    yield EngineRunEvent, "wait"
    yield EngineRunEvent, "finish"
    kinds = {type(device): device for device in devices.opened_devices()}
    for device in kinds.values():
        yield from device.waits()


@contextmanager
def _record_spans_of_profiled_block(recorder: ProfileRecorder, profile: Profile) -> Iterator[None]:
    """The phases and the devices' copies are spans of the recorder; the profile knows what is called."""
    before: list[tuple[Any, str, Any]] = []
    begin_calls_natively()
    plain = KernelGraph.__call__

    def note_call_in_profiled_block(graph: KernelGraph, *args: Any, **options: Any) -> Any:
        if context.trace is None:
            kinds = profile.calls.setdefault(graph, {})
            if len(kinds) < MOST_KINDS:
                kinds.setdefault(_kind_of_call((args, options)), (args, options))
        result = plain(graph, *args, **options)
        if context.trace is None:
            for device in devices.opened_devices():
                recorder.note_memory(devices.name_of(device), device.statistics())
        return result

    try:
        before.append((KernelGraph, "__call__", plain))
        setattr(KernelGraph, "__call__", note_call_in_profiled_block)  # noqa: B010  # which a type checker would have be the same
        for owner, name, kind, words in _compile_phases_to_profile():
            before.append((owner, name, owner.__dict__[name]))
            setattr(owner, name, _time_method_in_profiled_block(recorder, owner.__dict__[name], kind, words))
        for of in dict.fromkeys(map(type, devices.opened_devices())):
            for name in ("upload", "upload_later", "download"):
                before.append((of, name, getattr(of, name)))
                setattr(of, name, _time_copy_in_profiled_block(recorder, getattr(of, name), name))
        for device in devices.opened_devices():
            before += device.profiled(recorder)
        yield
    finally:
        for owner, name, method in reversed(before):
            setattr(owner, name, method)


def _kind_of_call(given: ProfiledCall) -> Hashable:
    """The structure of the arguments, and the shapes, dtypes and types of what is in them."""
    leaves: list[Any] = []
    tree = flatten(given, leaves)
    return tree, tuple((type(x), getattr(x, "shape", ()), str(getattr(x, "dtype", ""))) for x in leaves)


def _time_method_in_profiled_block(
    recorder: ProfileRecorder, method: Any, kind: str, words: Callable[..., tuple[str, str]]
) -> Any:
    @functools.wraps(method)
    def call_within_profiled_block(*args: Any, **options: Any) -> Any:
        if kind == "wait" and args[0].query():
            return method(*args, **options)
        name, line = words(*args)
        with recorder.host_span(kind, name, line):
            return method(*args, **options)

    return call_within_profiled_block


def _time_copy_in_profiled_block(recorder: ProfileRecorder, method: Any, name: str) -> Any:
    @functools.wraps(method)
    def copy_within_profiled_block(device: Any, first: Any, second: Any, *rest: Any, **options: Any) -> Any:
        host = second if name == "download" else first
        with recorder.host_span("copy", f"{name} ({devices.name_of(device)})", user_line(), nbytes=host.nbytes):
            return method(device, first, second, *rest, **options)

    return copy_within_profiled_block
