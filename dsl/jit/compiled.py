"""A compiled program in; the entries that run it out: they take part in the choice of its plan until that is made."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from typing import Any

from ...compiler.graph.graph import Graph
from ...compiler.passes.materialize import MemoryLayout
from ...compiler.pipeline import Stages
from ...runtime.core.errors import OutOfMemory
from ...runtime.core.frozen import dataclass
from ...runtime.program.device import Device, Executable, GpuProperties
from ...runtime.program.plan import Plan
from ...runtime.program.program import Program
from ...runtime.schedule.cost_model import machine_of_device
from ...runtime.tune.trial import PlanTrial, open_plan_trial, verify_and_prepare_plan
from ..core.pytree import Tree
from .launcher import Launcher, Run, generate_launcher
from .options import Options
from .traced_function import SpecializationEvent, TracedArgument, TracedFunction


@dataclass
class CompiledProgram:
    """A program, its plan, and, from the first call on, what runs it. trial: how the plan is chosen, if it is. stages:
    what it was made by, of the latest program alone: they take memory, and people look at what they have just run."""

    program: Program
    plan: Plan
    executable: Executable | None = None
    trial: PlanTrial | None = None
    stages: Stages | None = None

    def keep_stages(self, stages: Stages) -> None:
        global _latest
        before = None if _latest is None else _latest()
        if before is not None:
            before.stages = None
        self.stages, _latest = stages, weakref.ref(self)

    def make_ready(self, device: Device, streams: str | int, memory: str) -> None:
        """Open the trial or, where there is nothing to choose, make the plan ready. Raises PlanError, CompileError."""
        if self.executable is None:
            machine = machine_of_device(device.kind, device.properties)
            self.trial = open_plan_trial(self.program, self.plan, streams, memory, machine, device)
            if self.trial is None:
                self.executable = verify_and_prepare_plan(device, self.plan)
            else:
                self.adopt()

    def adopt(self) -> None:
        """Run what the trial says."""
        assert self.trial is not None
        self.plan, self.executable = self.trial.plan, self.trial.executable

    def lines(self) -> Iterator[str]:
        """How the plan was chosen, and what the device says of it."""
        if self.trial is not None:
            yield from self.trial.lines()
        if self.executable is not None:
            yield from self.executable.notes

    def entry(self, captured: TracedFunction, device: Device, leaves: Sequence[Any], arrays: Sequence[int]) -> Launcher:
        """An entry for calls like the one with these leaves."""
        trial = self.trial
        assert self.executable is not None
        if trial is None or trial.tuner.winner is not None:
            return self._final(captured, device, leaves, arrays)
        return self._on_trial(trial, captured, device, leaves, arrays)

    def _final(
        self, captured: TracedFunction, device: Device, leaves: Sequence[Any], arrays: Sequence[int]
    ) -> Launcher:
        assert self.executable is not None
        execute, direct = self.executable.run, self.executable.direct
        return generate_launcher(captured, self.plan, execute, device, leaves, arrays, direct)

    def _on_trial(
        self, trial: PlanTrial, captured: TracedFunction, device: Device, leaves: Sequence[Any], arrays: Sequence[int]
    ) -> Launcher:
        """An entry whose calls take turns among the candidates; the winner's own function then takes its place."""
        made: dict[tuple[int, bool], Run] = {}

        def make(number: int, timed: bool, leaves: Sequence[Any]) -> Launcher:
            execute = trial.run_timed_candidate(number) if timed else trial.candidate_executable(number).run
            return generate_launcher(captured, trial.candidates[number].plan, execute, device, leaves, arrays)

        def run(leaves: Sequence[Any], places: Sequence[int], caller: Sequence[Any] = ()) -> Any:
            while True:
                number, timed = (trial.current, False) if caller else trial.next_candidate()
                if trial.tuner.winner is not None:
                    self.adopt()
                    final = self._final(captured, device, leaves, arrays)
                    entry.run, entry.text, entry.fast = final.run, final.text, final.fast
                    return entry.run(leaves, places, caller)
                if (number, timed) not in made:
                    made[number, timed] = make(number, timed, leaves).run
                try:
                    return made[number, timed](leaves, places, caller)
                except OutOfMemory:
                    if not trial.drop(number, "out of memory"):
                        raise

        entry = make(trial.current, False, leaves)
        entry.run = run
        return entry


_latest: weakref.ref[CompiledProgram] | None = None


@dataclass(frozen=True, slots=True)
class CallInspection:
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
    stages: Stages
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
