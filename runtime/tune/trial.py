"""A program and a device in; what runs each call out. It is the fastest, once early calls have told which that is."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
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
    ENOUGH,
    PlanTuner,
    StoredWinner,
    hodges_lehmann_of_measured_times,
    load_stored_tuning_winner,
    lower_quartile_of_measured_times,
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
    return prepare_plan_on_devices((device,), plan, way)


def prepare_plan_on_devices(devices: Sequence[Device], plan: Plan, way: str = "") -> Executable:
    """The plan made ready on one device, or on several. Raises CompileError with the user's line."""
    try:
        return devices[0].prepare(plan, way, devices) if plan.devices else devices[0].prepare(plan, way)
    except CompileError as error:
        for task in plan.tasks:
            if error.kernel == getattr(task.kernel, "name", None):
                serial_error_with_task_location(error, task, plan.program.name)
        raise


ALONE, QUEUED = "alone", "queued"
"""The ways of calling: a call that comes when the one before is over, and one behind another, which still runs."""

USUAL = {ALONE: lower_quartile_of_measured_times, QUEUED: hodges_lehmann_of_measured_times}
"""What the samples of each way come to: the end of a queued call says something of its neighbours too."""

UNTIMED, TIMED, MARKED = range(3)
"""How a call runs: as any, with `run_timed`, or as the first or last of a stretch, with `run_marked`."""

STRETCH = 4  # queued calls of one candidate, from the end of one to the end of the last
UNASKED = 1000  # calls without a measurement, after which a way without calls takes the other's winner


class Stretch:
    """Queued calls of one candidate. calls: those that have started. mark: the end of the first."""

    def __init__(self, candidate: int) -> None:
        self.candidate, self.calls = candidate, 0
        self.mark: Any = None


class StretchTiming:
    """See `Timing` in `runtime/program/device.py`: of one call in a stretch."""

    def __init__(self, whole: Timing, calls: int) -> None:
        self._whole, self._calls = whole, calls

    def query(self) -> float | None:
        found = self._whole.query()
        if found is None:
            return None
        return found / self._calls  # below 0 where a later call ends first


class PlanTrial:
    """Which candidate a call gets, of each way of calling. `plan` and `executable` are what runs a call alone where
    nothing is to be measured: the start's, then the winner's. May be called from any thread.

    A queued call overlaps those around it, so what it takes is told by a stretch of them, as they really run."""

    def __init__(
        self, candidates: Sequence[ScheduledPlanCandidate], starts: Mapping[str, int], device: Device, origin: str = ""
    ) -> None:
        """starts: of each way of calling. origin: where they come from, in words. on_winner is called once for each
        way, with the way and its tuner, when that has decided."""
        self.candidates = tuple(candidates)
        self.origin = origin
        self.on_winner: Callable[[str, PlanTuner], None] = lambda way, tuner: None
        self._device = device
        self._lock = threading.RLock()
        self._ready: dict[int, Executable] = {}
        self._pending: list[tuple[str, int, Timing]] = []
        self._latest: tuple[Event, ...] = ()
        self._runs = self._unasked = 0
        self._stretch: Stretch | None = None
        self._announced: set[str] = set()
        names = tuple(c.name for c in candidates)
        self.tuners = {way: PlanTuner(names, start, usual=USUAL[way]) for way, start in starts.items()}
        self.executable = self.candidate_executable(starts[ALONE])
        if not device.measures:
            self.settle(ALONE, starts[ALONE], f"left to the model: {device.kind} takes no times")

    @property
    def tuner(self) -> PlanTuner:
        """Of calls alone."""
        return self.tuners[ALONE]

    @property
    def plan(self) -> Plan:
        return self.candidates[self.current].plan

    @property
    def current(self) -> int:
        """The candidate of calls alone where none is measured."""
        return self.untimed_candidate(ALONE)

    @property
    def winners(self) -> set[int] | None:
        """The candidates that run from now on; None where it is not decided."""
        found = [tuner.winner for tuner in self.tuners.values()]
        return None if None in found else set(found)  # type: ignore[arg-type]

    def untimed_candidate(self, way: str) -> int:
        """The candidate that runs a call where none is measured: the winner or, until there is one, the other way's."""
        for tuner in (self.tuners[way], *self.tuners.values()):
            if tuner.winner is not None:
                return tuner.winner
        live, start = self.tuners[way].live_candidates, self.tuners[way].start
        return start if start in live else live[0]

    def candidate_executable(self, number: int) -> Executable:
        """The executable of a candidate."""
        with self._lock:
            if number not in self._ready:
                candidate = self.candidates[number]
                self._ready[number] = prepare_plan_for_trial(self._device, candidate.plan, candidate.way)
            return self._ready[number]

    def next_candidate(self) -> tuple[int, int]:
        """The candidate of the next call, and how that is to run."""
        with self._lock:
            self._collect_known_times()
            way = self._way_of_next_call()
            stretch, self._stretch = self._stretch, None
            if stretch is not None:
                if way == QUEUED and stretch.calls:
                    self._stretch = stretch
                    return stretch.candidate, MARKED if stretch.calls >= STRETCH else UNTIMED
                self._lose_stretch(stretch.candidate)
            number = self._next_candidate_that_runs(way) if settings.engine == "async" else None
            if number is None:
                self._count_unasked_call(way)
                return self.untimed_candidate(way), UNTIMED
            if way == ALONE:
                return number, TIMED
            self._stretch = Stretch(number)
            return number, MARKED

    def _lose_stretch(self, candidate: int) -> None:
        """A stretch that ended early: the caller waited. Or, where that happens to one candidate's alone, the host was
        slower than the device."""
        tuner = self.tuners[QUEUED]
        tuner.add_sample(candidate, math.nan)
        never = not tuner.times[candidate] and tuner.lost[candidate] > ENOUGH
        if never and any(len(times) >= ENOUGH for times in tuner.times):
            tuner.drop(candidate, "its launches take the host longer than its work takes the device")
        self._announce_winners()

    def next_untimed_candidate(self) -> int | None:
        """The candidate of the next call where that is known at a look, and nothing is to be measured."""
        way, stretch = self._way_of_next_call(), self._stretch
        if stretch is not None:
            return stretch.candidate if way == QUEUED and 0 < stretch.calls < STRETCH else None
        self._unasked += 1
        return None if self._unasked > UNASKED and self.winners is None else self.tuners[way].winner

    def _way_of_next_call(self) -> str:
        if QUEUED not in self.tuners or self._runs != self._device.runs:  # somebody else's work is before it
            return ALONE
        return ALONE if all([event.query() for event in self._latest]) else QUEUED

    def _next_candidate_that_runs(self, way: str) -> int | None:
        tuner = self.tuners[way]
        while tuner.winner is None:
            number = tuner.next_candidate()
            if number is None:
                break
            try:
                self.candidate_executable(number)
            except (CompileError, OutOfMemory) as error:
                if number == tuner.start:
                    raise
                self._drop(number, f"{type(error).__name__}: {error}")
                continue
            return number
        return None

    def _count_unasked_call(self, way: str) -> None:
        """Nobody may ever call in the other way."""
        winner = self.tuners[way].winner
        self._unasked += 1
        if winner is not None and self._unasked > UNASKED:
            for other, tuner in self.tuners.items():
                if tuner.winner is None:
                    self.settle(other, winner, f"that of calls {way}: there were hardly any {other}")

    def runner(self, number: int, how: int, waits: bool) -> Callable[..., tuple[Event, ...]]:
        """`run` of the candidate's executable; what it takes is noted. waits: the caller waits for all of it."""
        executable: Any = self.candidate_executable(number)
        run = executable.run_and_wait if waits else executable.run

        def run_candidate(memories: Any, arena: Any, scalars: Any, after: Any) -> tuple[Event, ...]:
            if how == TIMED:
                events, timing = executable.run_timed(memories, arena, scalars, after, waits)
                with self._lock:
                    self._pending.append((ALONE, number, timing))
            elif how == MARKED:
                events, mark = executable.run_marked(memories, arena, scalars, after)
                self._mark_stretch(number, mark, executable)
            else:
                events = run(memories, arena, scalars, after)
            self._note_call(tuple(events))
            return tuple(events)

        return run_candidate

    def direct(self, number: int) -> Callable[..., Any]:
        """`direct` of the candidate's executable, whose calls are noted."""
        made = self.candidate_executable(number).direct
        if self._device.host_memory:  # such calls are over at once
            return made

        def make_noted_call(*given: Any) -> Any:
            start = made(*given)

            def start_and_note(*call: Any) -> Event | None:
                event: Event | None = start(*call)
                if event is not None:
                    self._note_call((event,))
                return event

            return None if start is None else start_and_note

        return make_noted_call

    def _note_call(self, events: tuple[Event, ...]) -> None:
        self._latest, self._runs = events, self._device.runs
        stretch = self._stretch  # that another thread may end
        if stretch is not None:
            stretch.calls += 1

    def _mark_stretch(self, number: int, mark: Any, executable: Any) -> None:
        with self._lock:
            stretch = self._stretch
            if stretch is None or stretch.candidate != number:  # of another thread
                return
            if not stretch.calls:
                stretch.mark = mark
            else:
                whole = executable.time_between_marks(stretch.mark, mark)
                self._pending.append((QUEUED, number, StretchTiming(whole, stretch.calls)))
                self._stretch = None

    def drop(self, number: int, why: str) -> bool:
        """A call of the candidate could not start; whether another candidate is left to try."""
        with self._lock:
            self._stretch = None
            if self.winners is not None or min(len(t.live_candidates) for t in self.tuners.values()) < 2:
                return False
            self._drop(number, why)
            return True

    def _drop(self, number: int, why: str) -> None:
        for tuner in self.tuners.values():
            tuner.drop(number, why)
        self._announce_winners()

    def _collect_known_times(self) -> None:
        """Take in the times that have become known."""
        if not self._pending:
            return
        waiting = []
        for way, number, timing in self._pending:
            found = timing.query()
            if found is None:
                waiting.append((way, number, timing))
            else:
                self.tuners[way].add_sample(number, found)
        self._pending = waiting
        self._announce_winners()

    def settle(self, way: str, number: int, why: str) -> None:
        """A winner that is known without a trial."""
        self.tuners[way].winner, self.tuners[way].reason = number, why
        self._announced.add(way)
        self._announce_winners()

    def _announce_winners(self) -> None:
        for way, tuner in self.tuners.items():
            if tuner.winner is not None and way not in self._announced:
                self._announced.add(way)
                self.on_winner(way, tuner)
        if self.tuner.winner is not None:
            self.executable = self.candidate_executable(self.tuner.winner)
            if QUEUED in self.tuners:
                self.tuners[QUEUED].start = self.tuner.winner
        if (winners := self.winners) is not None:
            self._ready = {number: self.candidate_executable(number) for number in winners}  # the losers' memory goes
            self._pending.clear()

    def lines(self) -> Iterator[str]:
        """Predicted and measured times of the candidates, and why the winners won."""
        if self.origin:
            yield self.origin
        for way, tuner in self.tuners.items():
            if len(self.tuners) > 1:
                yield f"calls {way}:"
            for candidate, line in zip(self.candidates, tuner.lines(), strict=True):
                yield f"{line}; predicted {candidate.predicted:.1f} us"
        won = [self._line_of_winner(way, tuner) for way, tuner in self.tuners.items()]
        yield won[0] if len(set(won)) == 1 else "; ".join(map(": ".join, zip(self.tuners, won, strict=True)))

    def _line_of_winner(self, way: str, tuner: PlanTuner) -> str:
        name = self.candidates[self.untimed_candidate(way)].name
        return f"won: {name}, {tuner.reason}" if tuner.winner is not None else f"not decided yet; so far: {name}"


def _is_there_a_choice(program: Program, plan: Plan, streams: str | int, ways: Sequence[str]) -> bool:
    side_by_side = streams == "auto" and plan.report is not None and plan.report.width != 1
    return side_by_side or len(ways) > 1 or plan.program is not program


def open_plan_trial(
    program: Program, plan: Plan, streams: str | int, memory: str, machine: MachineModel, device: Device
) -> PlanTrial | None:
    """What is to run a program on a device, given the model's plan. None where that is all there is to choose from."""
    if not settings.tune or settings.engine != "async" or not is_schedule_worth_tuning(program, plan, machine):
        return None
    ways = device.ways(plan)
    if not _is_there_a_choice(program, plan, streams, ways):
        return None
    keys = _keys_of_winners(program, device, str(streams), memory)
    sizes = size_bucket_of_program(program)
    known = {calling: found for calling, key in keys.items() if (found := load_stored_tuning_winner(key, sizes))}
    first = ScheduledPlanCandidate(plan, ways[0], plan.program is not program)
    wanted = tuple(dict.fromkeys(winner.winner for winner in known.values()))
    decided = len(known) == len(keys) and all(winner.exact for winner in known.values())
    candidates: Sequence[ScheduledPlanCandidate] = (first,)
    if not decided or wanted != (first.name,):
        candidates = choose_plan_candidates(program, streams, memory, machine, ways, wanted)
        if len(candidates) < 2:
            return None
    if decided:
        candidates = _candidates_named(candidates, wanted)
    names = [c.name for c in candidates]
    start = next((i for i, c in enumerate(candidates) if c.plan == plan and c.way == ways[0]), 0)
    known = {calling: winner for calling, winner in known.items() if winner.winner in names}
    starts = dict.fromkeys(keys, start) | {calling: names.index(winner.winner) for calling, winner in known.items()}
    trial = PlanTrial(candidates, starts, device, "; ".join(dict.fromkeys(map(_origin_of_start, known.values()))))
    for calling, winner in known.items():
        if winner.exact:
            trial.settle(calling, starts[calling], "measured before")
    trial.on_winner = partial(_store_tuned_winner, keys, sizes, program.name)
    return trial


def _candidates_named(
    candidates: Sequence[ScheduledPlanCandidate], names: Sequence[str]
) -> Sequence[ScheduledPlanCandidate]:
    """Those of these names; all where one is missing."""
    found = [c for c in candidates if c.name in names]
    return found if len(found) == len(names) else candidates


def _keys_of_winners(program: Program, device: Device, *options: str) -> dict[str, str]:
    """Where the winner of each way of calling is kept."""
    keys = {ALONE: size_free_program_key(program, device.identity, *options)}
    return keys | (
        {QUEUED: size_free_program_key(program, device.identity, *options, QUEUED)} if device.overlaps else {}
    )


def _store_tuned_winner(keys: Mapping[str, str], sizes: Sequence[int], name: str, way: str, tuner: PlanTuner) -> None:
    if tuner.is_measured:
        assert tuner.winner is not None
        store_tuning_winner(keys[way], sizes, tuner.names[tuner.winner], tuner.measurements(), name)


def _origin_of_start(known: StoredWinner) -> str:
    if not known.exact:
        return f"starts from {known.winner}, the winner of a neighbouring size"
    return "measured before: " + ", ".join(f"{name} {us:.1f} us" for name, us in known.times.items())
