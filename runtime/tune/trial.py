"""A program and a device in; what runs each call out. It is the fastest, once early calls have told which that is."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from ..core.errors import CompileError, OutOfMemory
from ..core.settings import settings
from ..interpret.serial import serial_error_with_task_location
from ..program.device import Device, Event, Executable, Timing
from ..program.plan import Plan, plan_boundary
from ..program.program import Program
from ..schedule.cost_model import MachineModel
from ..schedule.schedule import ScheduledPlanCandidate, choose_plan_candidates, is_schedule_worth_tuning
from .tuner import (
    PlanTuner,
    load_stored_tuning_winner,
    size_bucket_of_program,
    size_free_program_key,
    store_tuning_winner,
)


def prepare_plan_for_trial(device: Device, plan: Plan, way: str = "") -> Executable:
    """The plan made ready, after the verifier has seen it where the settings say so. Raises PlanError."""
    if settings.verify:
        from ..verify.plan import require_safe_plan

        ends = plan_boundary(plan)
        require_safe_plan(plan, ends.roots, ends.exits)
    try:
        return device.prepare(plan, way)
    except CompileError as error:
        for task in plan.tasks:
            if error.kernel == getattr(task.kernel, "name", None):
                serial_error_with_task_location(error, task, plan.program.name)
        raise


class PlanTrial:
    """Which candidate a call gets. `plan` and `executable` are what runs where nothing is to be measured: the start's,
    then the winner's. May be called from any thread."""

    def __init__(
        self, candidates: Sequence[ScheduledPlanCandidate], start: int, device: Device, origin: str = ""
    ) -> None:
        """origin: where `start` comes from, in words. on_winner is called once, with the tuner, when it has decided."""
        self.candidates = tuple(candidates)
        self.origin = origin
        self.on_winner: Callable[[PlanTuner], None] = lambda tuner: None
        self._device = device
        self._lock = threading.RLock()
        self._ready: dict[int, Executable] = {}
        self._pending: list[tuple[int, Timing]] = []
        self.tuner = PlanTuner(tuple(c.name for c in candidates), start)
        self._start = start
        self.executable = self.candidate_executable(start)
        if not device.measures:
            self._settle_on_winner(start, f"left to the model: {device.kind} takes no times")

    @property
    def plan(self) -> Plan:
        return self.candidates[self.current].plan

    @property
    def current(self) -> int:
        """The candidate that runs where none is measured."""
        if self.tuner.winner is not None:
            return self.tuner.winner
        live = self.tuner.live_candidates
        return self._start if self._start in live else live[0]

    def candidate_executable(self, number: int) -> Executable:
        """The executable of a candidate."""
        with self._lock:
            if number not in self._ready:
                candidate = self.candidates[number]
                self._ready[number] = prepare_plan_for_trial(self._device, candidate.plan, candidate.way)
            return self._ready[number]

    def next_candidate(self) -> tuple[int, bool]:
        """The candidate of the next call, and whether that is to be timed (with `run_timed_candidate`)."""
        with self._lock:
            self._collect_known_times()
            while self.tuner.winner is None and settings.engine == "async":
                number = self.tuner.next_candidate()
                if number is None:
                    break
                try:
                    self.candidate_executable(number)
                except (CompileError, OutOfMemory) as error:
                    if number == self._start:
                        raise
                    self.drop(number, f"{type(error).__name__}: {error}")
                    continue
                return number, True
            return self.current, False

    def run_timed_candidate(self, number: int, waits: bool) -> Callable[..., tuple[Event, ...]]:
        """`run` of the candidate's executable, its time noted."""
        run_timed: Any = self.candidate_executable(number).run_timed

        def run_and_time_candidate(memories: Any, arena: Any, scalars: Any, after: Any) -> tuple[Event, ...]:
            events, timing = run_timed(memories, arena, scalars, after, waits)
            with self._lock:
                self._pending.append((number, timing))
            return tuple(events)

        return run_and_time_candidate

    def drop(self, number: int, why: str) -> bool:
        """A call of the candidate could not start; whether another candidate is left to try."""
        with self._lock:
            if self.tuner.winner is not None or len(self.tuner.live_candidates) < 2:
                return False
            self.tuner.drop(number, why)
            self._settle_if_decided()
            return True

    def _collect_known_times(self) -> None:
        """Take in the times that have become known."""
        if not self._pending:
            return
        waiting = []
        for number, timing in self._pending:
            found = timing.query()
            if found is None:
                waiting.append((number, timing))
            else:
                self.tuner.add_sample(number, found)
        self._pending = waiting
        self._settle_if_decided()

    def _settle_on_winner(self, number: int, why: str) -> None:
        self.tuner.winner, self.tuner.reason = number, why
        self._settle_if_decided()

    def _settle_if_decided(self) -> None:
        if self.tuner.winner is not None and len(self._ready) > 0:
            self.executable = self.candidate_executable(self.tuner.winner)
            self._ready = {self.tuner.winner: self.executable}  # the losers' memory goes back
            self._pending.clear()
            self.on_winner(self.tuner)
            self.on_winner = lambda tuner: None

    def lines(self) -> Iterator[str]:
        """Predicted and measured times of the candidates, and why the winner won."""
        if self.origin:
            yield self.origin
        for candidate, line in zip(self.candidates, self.tuner.lines(), strict=True):
            yield f"{line}; predicted {candidate.predicted:.1f} us"
        tuner = self.tuner
        name = self.candidates[self.current].name
        yield f"won: {name}, {tuner.reason}" if tuner.winner is not None else f"not decided yet; so far: {name}"


def open_plan_trial(
    program: Program, plan: Plan, streams: str | int, memory: str, machine: MachineModel, device: Device
) -> PlanTrial | None:
    """What is to run a program on a device, given the model's plan. None where that is all there is to choose from."""
    if not settings.tune or settings.engine != "async" or not is_schedule_worth_tuning(program, plan, machine):
        return None
    ways = device.ways(plan)
    side_by_side = streams == "auto" and plan.report is not None and plan.report.width != 1
    if not side_by_side and len(ways) == 1 and plan.program is program:
        return None
    key = size_free_program_key(program, device.identity, str(streams), memory)
    sizes = size_bucket_of_program(program)
    known = load_stored_tuning_winner(key, sizes)
    chosen = ScheduledPlanCandidate(plan, ways[0], plan.program is not program)
    if known is not None and known.exact and known.winner == chosen.name:
        return PlanTrial([chosen], 0, device, f"measured before: {_format_trial_times(known.times)}")
    kept = () if known is None else (known.winner,)
    candidates = choose_plan_candidates(program, streams, memory, machine, ways, kept)
    names = [c.name for c in candidates]
    if len(names) < 2:
        return None
    start, origin = next((i for i, c in enumerate(candidates) if c.plan == plan and c.way == ways[0]), 0), ""
    if known is not None and known.winner in names:
        start = names.index(known.winner)
        if known.exact:
            return PlanTrial(
                candidates[start : start + 1], 0, device, f"measured before: {_format_trial_times(known.times)}"
            )
        origin = f"starts from {known.winner}, the winner of a neighbouring size"
    trial = PlanTrial(candidates, start, device, origin)
    trial.on_winner = partial(_store_tuned_winner, key, sizes, program.name)
    return trial


def _store_tuned_winner(key: str, sizes: Sequence[int], name: str, tuner: PlanTuner) -> None:
    if tuner.is_measured:
        assert tuner.winner is not None
        store_tuning_winner(key, sizes, tuner.names[tuner.winner], tuner.measurements(), name)


def _format_trial_times(times: Any) -> str:
    return ", ".join(f"{name} {us:.1f} us" for name, us in times.items())
