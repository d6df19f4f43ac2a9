"""A Program in; the plans that may be the fastest in truth out, each with a name that holds for every size. Pure.

All of them give the same bits: they differ in streams, packing and replay, never in what a kernel or a library does.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ..core.frozen import dataclass
from ..program.plan import Plan
from ..program.program import Program
from .batching import batch_matmul_tasks, pack_small_launches
from .cost_model import MachineModel
from .schedule import schedule, schedule_alternative_plans
from .surroundings import ALONE, Surroundings

CANDIDATES = 4  # at most


@dataclass(frozen=True, slots=True)
class PlanCandidate:
    """A plan, and the way that the device is to run it (one of those it offers; empty: the only one)."""

    plan: Plan
    way: str = ""
    packed: bool = False

    @property
    def name(self) -> str:
        assert self.plan.report is not None
        return ", ".join(filter(None, (self.plan.report.chosen, "packed" if self.packed else "", self.way)))

    @property
    def predicted(self) -> float:
        return predicted_microseconds(self.plan)


def predicted_microseconds(plan: Plan) -> float:
    """Microseconds, by the cost model."""
    report = plan.report
    assert report is not None
    return next(c.predicted for c in report.candidates if c.name == report.chosen)


def batch_matmul_tasks_where_faster(
    program: Program, streams: str | int, machine: MachineModel, surroundings: Surroundings = ALONE
) -> Program:
    """The program with its matmuls in batches. The device must have them, and the model find that no slower."""
    other = batch_matmul_tasks(program, machine) if machine.batches else program
    if other is program:
        return program
    plans = [schedule(each, streams, machine=machine, surroundings=surroundings) for each in (program, other)]
    times = [predicted_microseconds(plan) for plan in plans]
    return other if times[1] <= times[0] else program


def plan_by_cost_model(
    program: Program, streams: str | int, memory: str, machine: MachineModel, surroundings: Surroundings = ALONE
) -> Plan:
    """The plan that the cost model finds fastest, small launches packed or not."""
    plans = [
        schedule(each, streams, memory, machine=machine, surroundings=surroundings)
        for each in _batched_and_packed_program_variants(program, machine)
    ]
    return min(plans, key=predicted_microseconds)


def _batched_and_packed_program_variants(program: Program, machine: MachineModel) -> tuple[Program, ...]:
    other = pack_small_launches(program, machine) if machine.packs else program
    return (program,) if other is program else (program, other)


def is_plan_worth_tuning(program: Program, plan: Plan, machine: MachineModel) -> bool:
    """Whether the choice between plans of the program matters at all."""
    return len(program.tasks) > 1 and plan.report is not None and predicted_microseconds(plan) >= machine.tiny


def choose_plan_candidates(
    program: Program,
    streams: str | int,
    memory: str,
    machine: MachineModel,
    ways: Sequence[str] = ("",),
    keep: Collection[str] = (),
) -> tuple[PlanCandidate, ...]:
    """At most four candidates, the simplest first: fewer streams, then the device's first way.

    Those named in `keep` come first, then, in the device's first way, the best of the program as it is, one stream
    (where `streams` is `auto`), and the best of the packed program; then the next best by prediction, in every way.
    """
    every: list[PlanCandidate] = []
    must: list[PlanCandidate] = []
    assignments = [name.split(",")[0] for name in keep]
    for number, each in enumerate(_batched_and_packed_program_variants(program, machine)):
        plans = schedule_alternative_plans(each, streams, memory, machine=machine, most=CANDIDATES, keep=assignments)
        every += [PlanCandidate(plan, way, number > 0) for way in ways for plan in plans]
        must += [PlanCandidate(plans[0], ways[0], number > 0)]
        must += [PlanCandidate(plan, ways[0]) for plan in plans[1:] if number == 0 and plan.streams == 1]
    kept = [c for c in every if c.name in keep]
    chosen: list[PlanCandidate] = []
    for candidate in (*kept, *must, *sorted(every, key=lambda c: c.predicted)):
        if candidate.name not in [c.name for c in chosen] and len(chosen) < CANDIDATES:
            chosen.append(candidate)
    return tuple(sorted(chosen, key=lambda c: (c.plan.streams, ways.index(c.way), c.packed)))
