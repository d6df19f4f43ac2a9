"""A program and a device in; what runs each call out: the fastest, once early calls have told which that is."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..core.errors import CompileError, OutOfMemory
from ..core.settings import settings
from ..interpret.serial import noted
from ..program.device import Device, Event, Executable, Timing
from ..program.plan import Plan
from ..program.plan_queries import borders
from ..program.program import Program
from ..schedule.cost_model import Machine
from ..schedule.plan_candidates import Candidate, choose_candidates, worth_measuring
from ..verify.plan import check
from .tuner import Tuner, bucket, keep, program_key, recall


def prepared(device: Device, plan: Plan, way: str = "") -> Executable:
    """The plan made ready, after the verifier has seen it where the settings say so. Raises PlanError."""
    if settings.verify:
        ends = borders(plan)
        check(plan, ends.roots, ends.exits)
    try:
        return device.prepare(plan, way)
    except CompileError as error:
        for task in plan.tasks:
            if error.kernel == getattr(task.kernel, "name", None):
                noted(error, task, plan.program.name)
        raise


class Trial:
    """Which candidate a call gets. `plan` and `executable` are what runs where nothing is to be measured: the start's,
    then the winner's. May be called from any thread."""

    def __init__(self, candidates: Sequence[Candidate], start: int, device: Device, origin: str = "") -> None:
        """origin: where `start` comes from, in words. on_winner is called once, with the tuner, when it has decided."""
        self.candidates = tuple(candidates)
        self.origin = origin
        self.on_winner: Callable[[Tuner], None] = lambda tuner: None
        self._device = device
        self._lock = threading.RLock()
        self._ready: dict[int, Executable] = {}
        self._pending: list[tuple[int, Timing]] = []
        self.tuner = Tuner(tuple(c.name for c in candidates), start)
        self._start = start
        self.executable = self.ready(start)
        if not device.measures:
            self._settle_on(start, f"left to the model: {device.kind} takes no times")

    @property
    def plan(self) -> Plan:
        return self.candidates[self.current].plan

    @property
    def current(self) -> int:
        """The candidate that runs where none is measured."""
        if self.tuner.winner is not None:
            return self.tuner.winner
        live = self.tuner.live
        return self._start if self._start in live else live[0]

    def ready(self, number: int) -> Executable:
        """The executable of a candidate."""
        with self._lock:
            if number not in self._ready:
                candidate = self.candidates[number]
                self._ready[number] = prepared(self._device, candidate.plan, candidate.way)
            return self._ready[number]

    def turn(self) -> tuple[int, bool]:
        """The candidate of the next call, and whether that is to be timed (with `timed`)."""
        with self._lock:
            self._read()
            while self.tuner.winner is None and settings.engine == "async":
                number = self.tuner.turn()
                if number is None:
                    break
                try:
                    self.ready(number)
                except (CompileError, OutOfMemory) as error:
                    if number == self._start:
                        raise
                    self.drop(number, f"{type(error).__name__}: {error}")
                    continue
                return number, True
            return self.current, False

    def timed(self, number: int) -> Callable[..., tuple[Event, ...]]:
        """`run` of the candidate's executable, its time noted."""
        run_timed: Any = self.ready(number).run_timed

        def run(memories: Any, arena: Any, scalars: Any, after: Any) -> tuple[Event, ...]:
            events, timing = run_timed(memories, arena, scalars, after)
            with self._lock:
                self._pending.append((number, timing))
            return tuple(events)

        return run

    def drop(self, number: int, why: str) -> bool:
        """A call of the candidate could not start; whether another candidate is left to try."""
        with self._lock:
            if self.tuner.winner is not None or len(self.tuner.live) < 2:
                return False
            self.tuner.drop(number, why)
            self._decided()
            return True

    def _read(self) -> None:
        """Take in the times that have become known."""
        if not self._pending:
            return
        waiting = []
        for number, timing in self._pending:
            found = timing.query()
            if found is None:
                waiting.append((number, timing))
            else:
                self.tuner.note(number, found)
        self._pending = waiting
        self._decided()

    def _settle_on(self, number: int, why: str) -> None:
        self.tuner.winner, self.tuner.reason = number, why
        self._decided()

    def _decided(self) -> None:
        if self.tuner.winner is not None and len(self._ready) > 0:
            self.executable = self.ready(self.tuner.winner)
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


def open_trial(
    program: Program, plan: Plan, streams: str | int, memory: str, machine: Machine, device: Device
) -> Trial | None:
    """What is to run a program on a device, given the model's plan; None where that is all there is to choose from."""
    if not settings.tune or settings.engine != "async" or not worth_measuring(program, plan, machine):
        return None
    ways = device.ways(plan)
    side_by_side = streams == "auto" and plan.report is not None and plan.report.width != 1
    if not side_by_side and len(ways) == 1 and plan.program is program:
        return None
    key = program_key(program, device.identity, str(streams), memory)
    sizes = bucket(program)
    known = recall(key, sizes)
    chosen = Candidate(plan, ways[0], plan.program is not program)
    if known is not None and known.exact and known.winner == chosen.name:
        return Trial([chosen], 0, device, f"measured before: {_times(known.times)}")
    kept = () if known is None else (known.winner,)
    candidates = choose_candidates(program, streams, memory, machine, ways, kept)
    names = [c.name for c in candidates]
    if len(names) < 2:
        return None
    start = next((i for i, c in enumerate(candidates) if c.plan == plan and c.way == ways[0]), 0)
    if known is not None and known.winner in names:
        start = names.index(known.winner)
        if known.exact:
            return Trial(candidates[start : start + 1], 0, device, f"measured before: {_times(known.times)}")
        trial = Trial(candidates, start, device, f"starts from {known.winner}, the winner of a neighbouring size")
    else:
        trial = Trial(candidates, start, device)

    def write_down(tuner: Tuner) -> None:
        if tuner.measured:
            assert tuner.winner is not None
            keep(key, sizes, tuner.names[tuner.winner], tuner.measurements(), program.name)

    trial.on_winner = write_down
    return trial


def _times(times: Any) -> str:
    return ", ".join(f"{name} {us:.1f} us" for name, us in times.items())
