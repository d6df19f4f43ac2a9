"""All versions of one decorated function: kinds of arguments in; traces, compiled programs and what runs calls out.

The launchers of a compiled program take part in the choice of its plan until that is made.
"""

from __future__ import annotations

import functools
import itertools
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from ...compiler.graph.graph import Graph, GraphError, graph_has_place_nodes
from ...compiler.passes.index_orders import CutGraph
from ...compiler.passes.materialize import MemoryLayout
from ...compiler.pipeline import PipelineStages, cut_off_orders, run_pipeline_stages
from ...runtime.core.errors import OutOfMemory
from ...runtime.core.frozen import dataclass, frozen, replace
from ...runtime.core.progress import progress_phase
from ...runtime.core.settings import settings
from ...runtime.devices.registry import DEVICES
from ...runtime.program.device import Device, Executable, GpuProperties
from ...runtime.program.plan import Plan, all_kernels_of_plan
from ...runtime.program.program import Program
from ...runtime.schedule.cost_model import machine_model_of_device
from ...runtime.schedule.schedule import batch_matmul_tasks_where_faster, plan_by_cost_model
from ...runtime.tune.rivals import MANY_LOOPS, PLAIN, Rival, open_contest, wins_uncompiled
from ...runtime.tune.trial import UNTIMED, PlanTrial, open_plan_trial, prepare_plan_for_trial
from ..array.array import Array
from ..array.devices import (
    begin_opening_device,
    default_device_kind,
    gpu_properties_at,
    kernel_target_of_device_kind,
    open_device,
)
from ..core.errors import (
    ArgumentKindError,
    ArgumentsError,
    FallbackWarning,
    Refusal,
    locate_graph_error,
    user_line,
    warn_user,
)
from ..core.pytree import Tree, flatten
from ..core.spec import spec_of
from ..environment.argument_properties import NeedCachedProperty
from ..environment.guards import GuardSet
from ..trace.trace import KnownLoops
from .graph_break import GraphBreakValueReader
from .in_numpy import NumPyLauncher, call_without_warnings, copied_leaf_for_numpy, fresh_arguments
from .launcher import (
    NOT_TAKEN,
    OFTEN,
    Launcher,
    call_waits,
    failing_launcher,
    generate_launcher,
    layout_of_argument,
    not_taken_by_fast_launcher,
)
from .options import Options
from .segments import CallWithKeptOrders, GraphBreakSegmentTrees, SegmentedCall
from .signature import StaticArgument, argument_of, byte_strides_of_leaf, is_number, python_number_of_call_leaf
from .trace_function import UnfinishedFunction, trace_function, traced_function_of_segment
from .traced_function import (
    SpecializationEvent,
    TracedArgument,
    TracedFunction,
    check_traces_are_same,
    no_host_numbers_of_call,
)


@dataclass
class CompiledProgram:
    """A program, its plan, and, from the first call on, what runs it. trial: how the plan is chosen, if it is. stages:
    what it was made by, of the latest program alone: they take memory, and people look at what they have just run."""

    program: Program
    plan: Plan
    executable: Executable | None = None
    trial: PlanTrial | None = None
    stages: PipelineStages | None = None

    def keep_stages(self, stages: PipelineStages) -> None:
        global _latest
        before = None if _latest is None else _latest()
        if before is not None:
            before.stages = None
        self.stages, _latest = stages, weakref.ref(self)

    def make_ready(self, device: Device, streams: str | int, memory: str) -> None:
        """Open the trial or, where there is nothing to choose, make the plan ready. Raises PlanError, CompileError."""
        if self.executable is None:
            machine = machine_model_of_device(device.kind, device.properties)
            self.trial = open_plan_trial(self.program, self.plan, streams, memory, machine, device)
            if self.trial is None:
                self.executable = prepare_plan_for_trial(device, self.plan)
            else:
                self.adopt()

    def adopt(self) -> None:
        """Run what the trial says."""
        assert self.trial is not None
        self.plan, self.executable = self.trial.plan, self.trial.executable

    @property
    def is_decided(self) -> bool:
        """Whether the plan of calls alone is the one that stays."""
        return self.executable is not None and (self.trial is None or self.trial.tuner.winner is not None)

    def lines(self) -> Iterator[str]:
        """How the plan was chosen, and what the device says of it."""
        if self.trial is not None:
            yield from self.trial.lines()
        if self.executable is not None:
            yield from self.executable.notes

    def entry(self, captured: TracedFunction, device: Device, leaves: Sequence[Any], arrays: Sequence[int]) -> Launcher:
        """An entry for calls like the one with these leaves."""
        waits = call_waits(captured, device, leaves, arrays)
        if self._is_one_plan_final(waits):
            return self._launcher_of_final_plan(captured, device, leaves, arrays)
        assert self.trial is not None
        return self._launcher_during_plan_trial(self.trial, captured, device, leaves, arrays)

    def _is_one_plan_final(self, waits: bool) -> bool:
        """Whether all calls to come run the same plan. waits: all are alone."""
        trial = self.trial
        return trial is None or (waits and self.is_decided) or len(trial.winners or ()) == 1

    def _launcher_of_final_plan(
        self, captured: TracedFunction, device: Device, leaves: Sequence[Any], arrays: Sequence[int]
    ) -> Launcher:
        assert self.executable is not None
        made, waits = self.executable, call_waits(captured, device, leaves, arrays)
        execute = made.run_and_wait if waits else made.run
        return generate_launcher(captured, self.plan, execute, device, leaves, arrays, made.direct)

    def _launcher_during_plan_trial(
        self, trial: PlanTrial, captured: TracedFunction, device: Device, leaves: Sequence[Any], arrays: Sequence[int]
    ) -> Launcher:
        """An entry whose calls take turns among the candidates, then each way of calling gets its winner. One that is
        so of both takes the entry's place."""
        made: dict[tuple[int, int], tuple[Any, Any]] = {}  # `run` and `fast` of the launchers
        waits = call_waits(captured, device, leaves, arrays)

        def make_candidate_launcher(number: int, how: int, leaves: Sequence[Any]) -> Launcher:
            execute = trial.runner(number, how, waits)
            direct = trial.direct(number) if how == UNTIMED else None
            return generate_launcher(captured, trial.candidates[number].plan, execute, device, leaves, arrays, direct)

        def run_next_candidate(leaves: Sequence[Any], places: Sequence[int], caller: Sequence[Any] = ()) -> Any:
            while True:
                number, how = (trial.current, UNTIMED) if caller else trial.next_candidate()
                if self.is_decided:
                    self.adopt()
                if self._is_one_plan_final(waits):
                    final = self._launcher_of_final_plan(captured, device, leaves, arrays)
                    entry.run, entry.text, entry.fast = final.run, final.text, final.fast
                    made.clear()
                    return entry.run(leaves, places, caller)
                if trial.winners is not None:  # the others' memory goes
                    for other in [key for key in made if key[0] not in trial.winners or key[1] != UNTIMED]:
                        del made[other]
                if (number, how) not in made:
                    launcher = make_candidate_launcher(number, how, leaves)
                    made[number, how] = launcher.run, launcher.fast
                try:
                    return made[number, how][0](leaves, places, caller)
                except OutOfMemory:
                    if not trial.drop(number, "out of memory"):
                        raise

        def run_untimed_candidate(leaves: Sequence[Any], caller: int = 0) -> Any:
            number = None if caller or settings.engine != "async" else trial.next_untimed_candidate()
            found = None if number is None else made.get((number, UNTIMED))
            return NOT_TAKEN if found is None else found[1](leaves, caller)

        entry = make_candidate_launcher(trial.current, UNTIMED, leaves)
        made[trial.current, UNTIMED] = entry.run, entry.fast
        entry.run = run_next_candidate
        if entry.fast is not not_taken_by_fast_launcher:
            entry.fast = run_untimed_candidate
        return entry


_latest: weakref.ref[CompiledProgram] | None = None


@frozen
class CompiledCall:
    """All that became of a call, for people to look at. parameters: the names of the function's, that of the
    one with a star (or nothing) last; tree, arguments: of the call; device: its kind and number. stages: what the
    compiler makes of the trace. log: what `why` tells."""

    name: str
    signature: str
    parameters: tuple[str, ...]
    options: Options
    device: tuple[str, int]
    gpu: GpuProperties
    tree: Tree
    arguments: Sequence[TracedArgument]
    captured: TracedFunction
    layouts: Sequence[MemoryLayout]
    stages: PipelineStages
    compiled: CompiledProgram
    log: tuple[SpecializationEvent, ...]
    segments: tuple[str, ...]

    @property
    def graph(self) -> Graph:
        return self.stages.passes[0][1]

    @property
    def plan(self) -> Plan:
        """The plan that runs; while that is not decided, the one that runs most."""
        trial = self.compiled.trial
        return self.compiled.plan if trial is None else trial.plan


MAX_SPECIALIZATIONS = 512  # what a function keeps of traces, plans and entries; what was not used lately goes first
KEPT = 512  # nodes from which a plan is kept on disk: one of fewer is made nearly as fast as it is found
MANY_VALUES = 8
FEW_ASKED = 8  # traces of one call for numbers that decide, after which more and more are known at once
MANY_COMBINATIONS = 32  # of values of several numbers, each of few
ALL = -1  # such numbers, in place of one leaf
MANY_CHANGES = 16  # of what one guard watches
LOG = 1000  # events that `why` can tell
ON_MESH = "..devices.mesh_calls"  # what functions with `mesh=` are
_PACKAGE = __package__.partition(".")[0]
SEVERAL = "..devices.device_calls"  # what runs calls on several devices; it stands above


class Specializations:
    """entries: key -> what runs calls of it, or the leaves whose values are part of the key. log: what `why` tells."""

    def __init__(self, function: Callable[..., Any], name: str, options: Options) -> None:
        self.function, self.name, self.options = function, name, options
        self.native = True  # whether the arrays of calls are in native byte order
        self.entries: dict[Hashable, Any] = {}
        self.traces: dict[Hashable, TracedFunction | frozenset[int]] = {}
        self.plans: dict[Hashable, CompiledProgram] = {}
        self.log: deque[SpecializationEvent] = deque(maxlen=LOG)
        self._changes: dict[str, int] = {}  # how often what a guard watches has changed
        self.lock = threading.RLock()
        self._values: dict[int, set[str]] = {}  # those seen of each number whose value was needed, and of `ALL`
        self._trees = GraphBreakSegmentTrees(MAX_SPECIALIZATIONS)
        self._place = options.place
        self._warned_of: set[str] = set()  # lines because of which calls run in NumPy: one warning each
        self._refused = 0  # calls of new keys since one was compiled
        self._refusing: NumPyLauncher | None = None  # what the latest of them had
        self._of_numbers: NumPyLauncher | None = None  # of calls of numbers alone, whose values decide many traces
        self._told_of: set[str] = set()  # arguments for which calls run there
        self._device: Device | None = None

    # what runs a call

    def entry(self, key: Hashable, tree: Tree, leaves: Sequence[Any], known: tuple[int, ...]) -> Launcher:
        """What runs a call. known: numbers to take by value although the trace does not ask for it."""
        found = self.known(key, leaves, known)
        if found is None:
            with self.lock, progress_phase(f"compiling {self.name}"):
                found = self.known(key, leaves, known) or self._trace_and_compile_launcher(key, tree, leaves, known)
        return found

    def known(self, key: Hashable, leaves: Sequence[Any], known: tuple[int, ...]) -> Launcher | None:
        """What runs a call, if it is there and still right."""
        found: Any = self.entries.get(key)
        if known or type(found) is tuple:
            found = self.entries.get((key, static_values_of_leaves(leaves, known or found)))
        return found if isinstance(found, Launcher) and found.guards.hold() else None

    def _remember_need(self, key: Hashable, leaves: Sequence[Any], need: NeedCachedProperty) -> None:
        """The next calls with an argument that does not hold the property need it too, if no number decided that."""
        arrays = all(byte_strides_of_leaf(leaves[i]) is not None for i in need.known)
        if type(need.holder) is int and arrays and type(self.entries.get(key)) is not tuple:
            remember_in_bounded_cache(self.entries, key, Launcher(need.raise_again, "", need.guards))

    def _trace_and_compile_launcher(
        self, key: Hashable, tree: Tree, leaves: Sequence[Any], known: tuple[int, ...]
    ) -> Launcher:
        if self._refusing is not None and self.passes_over_new_key():
            return self._refusing
        if self._of_numbers is not None and _are_numbers(leaves):
            return self._of_numbers
        begin_opening_device(self._place)
        try:
            captured, arguments, needed = self.trace(tree, leaves, frozenset(known))
        except NeedCachedProperty as need:
            self._remember_need(key, leaves, need)
            raise
        except UnfinishedFunction as unfinished:
            return failing_launcher(self._make_launcher(unfinished.captured, leaves), unfinished.error)
        except Refusal as error:
            if not error.needs_values or not self.may_run_in_numpy:
                raise
            self._note_calls_in_numpy(f"at {error}")
            self._refused, self._refusing = self._refused + 1, NumPyLauncher(error, GuardSet(()))
            entry: Launcher = NumPyLauncher(error, error.guards or GuardSet(()))
            self._remember_launcher(key, leaves, known, error.known, entry)
            return entry
        self._refused = 0
        if (plain := self._launcher_for_many_loops(captured, tree, leaves)) is not None:
            self._remember_launcher(key, leaves, known, needed, plain)
            return plain
        entry = (
            self._make_segmented_launcher(tree, arguments, captured)
            if captured.line
            else self._make_launcher(captured, leaves)
        )
        if type(entry) is Launcher and self._may_be_numpys(captured):
            code = getattr(self.function, "__code__", None)
            compiled = self.compiled(captured, leaves)
            direct = entry.fast is not not_taken_by_fast_launcher and compiled.is_decided
            text = f"{self.name} {'' if code is None else code.co_code.hex()}"
            entry.contest = open_contest(compiled.program, self.device, direct, text)
        self._remember_launcher(key, leaves, known, needed, entry)
        return entry

    def _may_be_numpys(self, captured: TracedFunction) -> bool:
        """Whether calls may as well run in NumPy, and twice to be timed: they only write to arguments and what these
        hold. What is decorated, or else of this package, means something else, or is slow, outside of a trace."""
        outside = (row.value for row in captured.guards.rows)
        return self.may_run_in_numpy and not captured.watched and not any(map(_is_of_this_package, outside))

    def _launcher_for_many_loops(
        self, captured: TracedFunction, tree: Tree, leaves: Sequence[Any]
    ) -> NumPyLauncher | None:
        """What runs calls with more loops than are worth compiling, where NumPy is faster."""
        loops = len({node.args for node in captured.graph.nodes if node.op == "loop"})
        if loops < MANY_LOOPS or captured.line or not self._may_be_numpys(captured):
            return None

        def run() -> None:
            call_without_warnings(self.function, *fresh_arguments(tree, leaves, copied_leaf_for_numpy))

        try:
            wins = wins_uncompiled(str(captured.graph), loops, self.device, run)
        except Exception:  # an error of the function's, which its call raises
            return None
        return self._note_faster_in_numpy(f"{loops} loops", self._plain_launcher(captured.guards)) if wins else None

    def _plain_launcher(self, guards: GuardSet) -> NumPyLauncher:
        """What runs calls in NumPy that could be compiled."""
        text = f"{self.name} runs in NumPy, which takes no such arguments; pass NumPy arrays"
        return NumPyLauncher(ArgumentsError(text), guards)

    def _note_faster_in_numpy(self, slower: str, entry: NumPyLauncher) -> NumPyLauncher:
        text = f"runs in NumPy, as it is written, which is faster: {slower}"
        self.note(SpecializationEvent("in NumPy", text))
        return entry

    def settle_contest(
        self, entry: Launcher, rivals: Callable[[NumPyLauncher], tuple[Rival, Rival, Rival]]
    ) -> Launcher:
        """What runs calls from now on: the compiled code, or NumPy. rivals: what the clock decides between."""
        contest, entry.contest = entry.contest, None
        assert contest is not None
        plain = self._plain_launcher(entry.guards)
        plain.by_value = entry.by_value
        decided = contest.stored_winner()
        if decided is None:
            try:
                decided = contest.decide_winner(*rivals(plain), lambda: entry.fast is not not_taken_by_fast_launcher)
            except Exception:  # an error of the function's, which its call raises
                return entry
        winner, times = decided
        if winner != PLAIN:
            return entry
        for key, known in [*self.entries.items()]:
            if known is entry:
                self.entries[key] = plain
        return self._note_faster_in_numpy(", ".join(f"{name} {us:.1f} us" for name, us in times.items()), plain)

    def passes_over_new_key(self) -> bool:
        """Whether a call of a new key runs in NumPy without a trace: where each call has another key, traces that end
        so would take longer than NumPy."""
        if self._refused <= OFTEN or not self._refused & (self._refused - 1):
            return False
        self._refused += 1
        return True

    def declines_new_key(self, entry: NumPyLauncher) -> bool:
        """Whether a call of a new key is to be traced, although this entry runs calls of any key."""
        return entry is not self._of_numbers and not self.passes_over_new_key()

    def runs_any_key_in_numpy(self, entry: Launcher) -> bool:
        """Whether it is what runs calls of ever new keys, of which none, or numbers alone, was compiled."""
        return (entry is self._refusing and not self.plans) or entry is self._of_numbers

    def _note_calls_in_numpy(self, reason: str) -> None:
        text = f"runs in NumPy, as it is written, since {reason}"
        self.note(SpecializationEvent("in NumPy", text))
        place = reason.partition(": ")[0]
        if self.options.untraceable == "warn" and place not in self._warned_of:
            self._warned_of.add(place)
            warn_user(f"{self.name} {text}; if that is meant, decorate with untraceable='numpy'", FallbackWarning)

    def count(self) -> tuple[int, int]:
        """How many kinds of calls there were, and how many of them run in NumPy."""
        kept = [entry for entry in list(self.entries.values()) if isinstance(entry, Launcher)]
        refused = sum(isinstance(entry, NumPyLauncher) for entry in kept)
        return len(kept) + len(self._told_of), refused + len(self._told_of)

    def note_argument_in_numpy(self, error: ArgumentKindError) -> None:
        """A call runs in NumPy for the kind of an argument, which is told once for each line."""
        if str(error) not in self._told_of:
            self._told_of.add(str(error))
            self._note_calls_in_numpy(f"at {error}")

    def note_caught_error(self, caught: list[Exception], error: Exception) -> None:
        """A call has met an error, and has caught it in NumPy. caught: such errors of earlier calls of its kind."""
        caught.append(error)
        if len(caught) == OFTEN + 1:
            for key, entry in [*self.entries.items()]:
                if isinstance(entry, Launcher) and entry.caught is caught:
                    self.entries[key] = NumPyLauncher(caught[0], entry.guards)
                    self.entries[key].by_value = entry.by_value
            self._note_calls_in_numpy(f"it often catches an error that values decide ({error!r})")

    @property
    def may_run_in_numpy(self) -> bool:
        """Whether a call may run as it is written; a device that computes nothing has no values."""
        return (
            self.options.untraceable in ("warn", "numpy")
            and len(self.options.devices) < 2
            and DEVICES[self.kind].computes
        )

    def _remember_launcher(
        self, key: Hashable, leaves: Sequence[Any], known: tuple[int, ...], needed: Iterable[int], entry: Launcher
    ) -> None:
        """needed: the leaves whose values the trace has asked for."""
        by_value = [i for i in needed if byte_strides_of_leaf(leaves[i]) is None]  # strides are part of every key
        entry.by_value = tuple(by_value)
        marker: Any = self.entries.get(key)
        if by_value and not known:
            marker = tuple(sorted({*by_value, *(marker if type(marker) is tuple else ())}))
            self.entries[key] = marker
        if known or type(marker) is tuple:
            remember_in_bounded_cache(self.entries, (key, static_values_of_leaves(leaves, known or marker)), entry)
        else:
            remember_in_bounded_cache(self.entries, key, entry)

    def _make_launcher(self, captured: TracedFunction, leaves: Sequence[Any]) -> Launcher:
        """What runs a trace, or a part of one, for leaves like these."""
        if self.runs_on_several(captured):
            several: Launcher = import_module(SEVERAL, __package__).launcher(self, captured, leaves)
            return several
        return self.on_one_device(captured, leaves)

    def runs_on_several(self, captured: TracedFunction) -> bool:
        """Whether the options or the trace name several devices."""
        return len(self.options.devices) > 1 or graph_has_place_nodes(captured.graph)

    def on_one_device(self, captured: TracedFunction, leaves: Sequence[Any]) -> Launcher:
        """What runs a trace on the first device."""
        indices = [place for place, leaf in enumerate(captured.feeds) if type(leaves[leaf]) is Array]
        if captured.state is None:
            layouts, gpu = self.layouts(captured, leaves), gpu_properties_at(self.place)
            target = kernel_target_of_device_kind(self.kind)
            cut = cut_off_orders(captured.graph, target, layouts, indices, len(captured.feeds), gpu)
            if cut is not None:
                return self._launcher_with_kept_orders(captured, leaves, cut)
        return self._launcher_of_one_plan(captured, leaves)

    def _launcher_with_kept_orders(
        self, captured: TracedFunction, leaves: Sequence[Any], cut: CutGraph
    ) -> CallWithKeptOrders:
        """What runs a trace whose graph is cut."""
        specs = [spec_of(cut.orders.nodes[o].type) for o in cut.orders.outputs]
        unknown: Any = None  # where they will be
        made = [Array(unknown, spec, self.device) for spec in specs]
        which = tuple(captured.feeds[place] for place in cut.places)
        orders = TracedFunction(
            graph=cut.orders, arrays=(), host=no_host_numbers_of_call, checks=(), tree=flatten(tuple(made), []),
            results=tuple(("array", i) for i in range(len(made))), assigned=(), guards=GuardSet(()), feeds=which,
        )  # fmt: skip
        feeds = (*captured.feeds, *range(len(leaves), len(leaves) + len(made)))
        rest = replace(captured, graph=cut.rest, feeds=feeds)
        self.note(SpecializationEvent("split", "what it makes of its indices alone is kept with these arrays"))
        parts = ((orders, leaves), (rest, [*leaves, *made]))
        kernels = [k for part in parts for k in all_kernels_of_plan(self.compiled(*part).plan)]
        loaded = self.device.load(kernels)  # compiled side by side; the launchers hold them then
        first, second = (self._launcher_of_one_plan(*part) for part in parts)
        del loaded
        return CallWithKeptOrders(first, second, len(leaves), which, self.device)

    def _launcher_of_one_plan(self, captured: TracedFunction, leaves: Sequence[Any]) -> Launcher:
        """What runs a trace as one program."""
        return self.ready(captured, leaves).entry(captured, self.device, leaves, captured.feeds)

    def _make_segmented_launcher(
        self, tree: Tree, arguments: Sequence[TracedArgument], first: TracedFunction
    ) -> Launcher:
        """What runs calls of these arguments in parts."""
        self.note(SpecializationEvent("split", f"split at {first.line}, and wherever else array values decide"))
        trace = functools.partial(trace_function, self.function, self.name, tree, arguments, native=self.native)
        finish = traced_function_of_segment
        return SegmentedCall(self.name, self._make_launcher, trace, finish, self.lock, first.guards, self._trees)

    # traces

    def trace(
        self, tree: Tree, leaves: Sequence[Any], known: frozenset[int]
    ) -> tuple[TracedFunction, list[TracedArgument], frozenset[int]]:
        """The trace for these leaves, what it saw of them, and which by value. It is cached while its guards hold; of
        arrays the layout is what it saw."""
        if self.options.untraceable == "split":  # a later part might ask
            known |= {i for i, leaf in enumerate(leaves) if byte_strides_of_leaf(leaf) is not None}
        loops = KnownLoops()
        for asked in itertools.count():
            arguments = [argument_of(leaf, i in known) for i, leaf in enumerate(leaves)]
            key = (tree, tuple(a.key for a in arguments))
            found = self.traces.get(key)
            if isinstance(found, TracedFunction) and (changed := found.guards.failed()) is not None:
                self.note(SpecializationEvent("traced again", f"traced again: {changed} has changed"))
                self._count_changed_guards(changed)
                found = None
            if found is None:
                began = time.perf_counter_ns()
                try:
                    with progress_phase("tracing"):
                        found = self._trace_for_arguments(tree, arguments, loops)
                except (NeedCachedProperty, Refusal) as need:
                    need.known = known
                    raise
                remember_in_bounded_cache(self.traces, key, found)
                if isinstance(found, TracedFunction):
                    shown, took = (
                        tuple(map(describe_traced_argument, arguments)),
                        (time.perf_counter_ns() - began) / 1e3,
                    )
                    self.note(
                        SpecializationEvent(
                            "traced", f"traced for ({', '.join(shown)})", user_line(), shown, took, tree
                        )
                    )
                    self._count_static_values(known, leaves, found)
            if isinstance(found, TracedFunction):
                return found, arguments, known
            assert not found <= known, "what is known is asked for again, and would be without end"
            ahead = range(min(found), min(len(leaves), min(found) + 2 ** max(asked - FEW_ASKED, 0)))
            known |= found | {i for i in ahead if is_number(leaves[i])}  # a list's are asked for one by one
        raise AssertionError  # the loop has no end

    def _trace_for_arguments(
        self, tree: Tree, arguments: Sequence[TracedArgument], loops: KnownLoops | None = None
    ) -> TracedFunction | frozenset[int]:
        reader = GraphBreakValueReader() if self.options.untraceable == "split" else None
        return trace_function(
            self.function,
            self.name,
            tree,
            arguments,
            reader,
            target_name=lambda: kernel_target_of_device_kind(self.kind),
            reruns=self.may_run_in_numpy,
            loops=loops,
            native=self.native,
        )

    def verify(self, tree: Tree, leaves: Sequence[Any]) -> None:
        """Trace a call again. Raises TraceError where that gives something else than the trace that serves the call."""
        with self.lock:
            captured, arguments, known = self.trace(tree, leaves, frozenset())
            try:
                captured.host(leaves)
            except Exception:  # its numbers do not fit this trace: the call takes all of them by value
                numbers = [i for i, leaf in enumerate(leaves) if is_number(leaf)]
                captured, arguments, known = self.trace(tree, leaves, known | frozenset(numbers))
            again = self._trace_for_arguments(tree, arguments)
            check_traces_are_same(self.name, captured, again)

    def note(self, event: SpecializationEvent) -> None:
        """Write it down; a program that has imported `logging` can read it there, from the logger `kernelgraph`."""
        self.log.append(event)
        logging = sys.modules.get("logging")
        if logging is not None:
            logging.getLogger("kernelgraph").debug("%s: %s", self.name, event.text)

    def _count_changed_guards(self, changed: str) -> None:
        self._changes[changed] = self._changes.get(changed, 0) + 1
        if self._changes[changed] == MANY_CHANGES:
            warn_user(
                f"{self.name} was traced {MANY_CHANGES} times since {changed} keeps changing, and each time compiles "
                "again what differs; pass it as an argument"
            )

    def _count_static_values(self, known: frozenset[int], leaves: Sequence[Any], captured: TracedFunction) -> None:
        """Warns of many traces for new values; a function of numbers alone then runs in Python, which traces do too."""
        numbers = [leaf for leaf in sorted(known) if byte_strides_of_leaf(leaves[leaf]) is None]
        alone = not (captured.graph.outputs or captured.watched) and self.may_run_in_numpy and _are_numbers(leaves)
        for leaf in numbers:
            if self._is_first_past_limit(leaf, repr(leaves[leaf]), MANY_VALUES):
                warn_user(
                    f"{self.name} was traced for more than {MANY_VALUES} values of one number, since its value "
                    "decides the trace; write np.where in place of if, or pass the number as an array"
                )
                self._run_numbers_in_python(alone)
        if any(len(self._values[leaf]) > MANY_VALUES for leaf in numbers):
            return
        if self._is_first_past_limit(ALL, repr([leaves[leaf] for leaf in numbers]), MANY_COMBINATIONS):
            warn_user(
                f"{self.name} was traced for more than {MANY_COMBINATIONS} combinations of the values of numbers, "
                "since these decide the trace; pass lists of numbers as arrays, and write np.where in place of if"
            )
            self._run_numbers_in_python(alone)

    def _run_numbers_in_python(self, alone: bool) -> None:
        """From now on, where the traces were of numbers alone: a trace takes longer than the function does."""
        if alone:
            self._of_numbers = self._plain_launcher(GuardSet(()))
            self.note(SpecializationEvent("in NumPy", "runs in Python, as it is written, for other numbers"))

    def _is_first_past_limit(self, of: int, value: str, limit: int) -> bool:
        """Whether it is a new value, with which they become more than so many."""
        values = self._values.setdefault(of, set())
        before = len(values)
        if before <= limit:
            values.add(value)
        return before == limit < len(values)

    # programs

    def layouts(self, captured: TracedFunction, leaves: Sequence[Any]) -> tuple[MemoryLayout, ...]:
        in_place = DEVICES[self.kind].host_memory
        copied = {w.leaf for w in captured.writes if w.differing}
        own = [
            layout_of_argument(leaves[i], in_place and (i not in copied or _is_dense(leaves[i])))
            for i in captured.feeds
        ]
        return (*own, *(layout_of_argument(array, in_place) for array in captured.arrays))

    def compiled(self, captured: TracedFunction, leaves: Sequence[Any]) -> CompiledProgram:
        """The program and the plan of a trace for leaves like these."""
        kind, layouts, replaced = self.kind, self.layouts(captured, leaves), self._replaced_inputs(captured, leaves)
        key = (captured.graph, layouts, replaced)
        found = self.plans.get(key)
        if found is None:
            began = time.perf_counter_ns()
            options, gpu = self.options, gpu_properties_at(self.place)
            machine, streams = machine_model_of_device(kind, gpu), options.streams
            made: list[PipelineStages] = []

            def compile_and_plan() -> tuple[Program, Plan]:
                stages = self._compile_stages(captured, layouts, replaced)
                made.append(stages)
                program = batch_matmul_tasks_where_faster(stages.program, machine)
                return program, plan_by_cost_model(program, streams, options.memory, machine)

            try:
                with progress_phase(f"fusing and scheduling {len(captured.graph.nodes)} nodes"):
                    if len(captured.graph.nodes) < KEPT:
                        program, plan = compile_and_plan()
                    else:
                        from .plan_cache import load_or_make_plan

                        decides = kind, options, gpu, machine, layouts, replaced
                        program, plan = load_or_make_plan(captured.graph, decides, compile_and_plan)
            except GraphError as error:
                raise locate_graph_error(error) from None
            found = CompiledProgram(program, plan)
            for stages in made:
                found.keep_stages(stages)
            remember_in_bounded_cache(self.plans, key, found)
            shown = ", ".join(str(captured.graph.nodes[i].type) for i in captured.graph.inputs)
            took = (time.perf_counter_ns() - began) / 1e3
            self.note(
                SpecializationEvent("compiled", f"compiled {len(program.tasks)} tasks for ({shown})", microseconds=took)
            )
        return found

    def _replaced_inputs(self, captured: TracedFunction, leaves: Sequence[Any]) -> tuple[tuple[int, int], ...]:
        """The outputs that NumPy arrays become, which are inputs too: the numbers of both. The kernels may write to
        these arrays themselves where nothing is raised once a call has begun."""
        if captured.watched or captured.failures or not DEVICES[self.kind].host_memory:
            return ()
        return tuple(
            (write.output, captured.feeds.index(write.leaf))
            for write in captured.writes
            if write.differing
            and type(leaves[write.leaf]) is np.ndarray
            and write.leaf in captured.feeds
            and _is_dense(leaves[write.leaf])
        )

    def _compile_stages(
        self, captured: TracedFunction, layouts: Sequence[MemoryLayout], replaced: Sequence[tuple[int, int]]
    ) -> PipelineStages:
        target, options = kernel_target_of_device_kind(self.kind), self.options
        return run_pipeline_stages(
            captured.graph,
            target,
            layouts,
            fastmath=options.fastmath,
            precision=options.precision or "float32",
            gpu=gpu_properties_at(self.place),
            replaced=replaced,
        )

    def stages(self, captured: TracedFunction, leaves: Sequence[Any]) -> PipelineStages:
        """What the compiler makes of a trace. It is kept of the program looked at or compiled last."""
        compiled = self.compiled(captured, leaves)
        if compiled.stages is None or compiled.stages.passes[0][1] is not captured.graph:
            replaced = self._replaced_inputs(captured, leaves)
            compiled.keep_stages(self._compile_stages(captured, self.layouts(captured, leaves), replaced))
        assert compiled.stages is not None
        return compiled.stages

    def ready(self, captured: TracedFunction, leaves: Sequence[Any]) -> CompiledProgram:
        """`compiled`, and its code made for the device."""
        with self.lock:
            found = self.compiled(captured, leaves)
            found.make_ready(self.device, self.options.streams, self.options.memory)
            return found

    @property
    def place(self) -> tuple[str, int]:
        """Kind and number of the device; chosen when it is first asked for."""
        if self._place is None:
            self._place = default_device_kind()
        return self._place

    @property
    def kind(self) -> str:
        """Of the device."""
        return self.place[0]

    @property
    def device(self) -> Device:
        """Opened when it is first asked for."""
        if self._device is None:
            self._device = open_device(self.place)
        return self._device


def remember_in_bounded_cache(cache: dict[Hashable, Any], key: Hashable, value: Any) -> None:
    """Add to a bounded cache; what was not used since the last clearing makes room."""
    if len(cache) >= MAX_SPECIALIZATIONS:
        for old, held in list(cache.items()):
            if getattr(held, "used", False):
                held.used = False
            else:
                del cache[old]
        if len(cache) >= MAX_SPECIALIZATIONS:
            cache.clear()
    cache[key] = value


def static_values_of_leaves(leaves: Sequence[Any], which: Sequence[int]) -> tuple[StaticArgument, ...]:
    """The values of some leaves, as part of a key."""
    return tuple(StaticArgument(python_number_of_call_leaf(leaves[i])) for i in which)


def describe_traced_argument(argument: TracedArgument) -> str:
    """An argument as `explain` and `why` write it."""
    if argument.spec is not None:
        return str(argument.spec.type)
    try:
        return repr(argument.value) if argument.static else type(argument.value).__name__
    except Exception:  # of a `__repr__` that does not take what it holds
        return object.__repr__(argument.value)


def _are_numbers(leaves: Sequence[Any]) -> bool:
    """Whether no array is among them."""
    return all(type(leaf) in (int, float, complex, StaticArgument) for leaf in leaves)


def _is_of_this_package(value: Any) -> bool:
    """Whether a value that a trace has read from outside is this package's module, function or object."""
    names = (type(value).__module__, *(_own_attribute(value, name) for name in ("__module__", "__name__")))
    return any(isinstance(name, str) and name.partition(".")[0] == _PACKAGE for name in names)


def _own_attribute(value: Any, name: str) -> Any:
    """An attribute as Python finds it, past `__getattr__` of the user's, which may raise anything; None without one."""
    try:
        return object.__getattribute__(value, name)
    except AttributeError:
        return None


def _is_dense(leaf: Any) -> bool:
    """Whether an array's elements lie in C's order without gaps."""
    return type(leaf) is not np.ndarray or leaf.flags.c_contiguous
