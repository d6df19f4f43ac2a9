"""The rule of a recorded loop. Its routines go along with changes, and back through it."""

from __future__ import annotations

from collections.abc import Sequence

from ...graph.graph import Value
from ...sequential.backwards import Backwards, reverse_routines
from ...sequential.form import Routine
from ...sequential.tangents import routine_with_tangents
from ..core.call import RuleCall, zero_cotangent
from ..core.kinds import Cotangents, Linear, Maybe, Tangents


def _differentiated_results_of_routine(routine: Routine) -> list[int]:
    """The arrays that are results, by part."""
    return [i for i, a in enumerate(routine.arrays) if a.role in ("out", "inout")]


def _differentiated_arguments_of_routine(routine: Routine) -> list[int]:
    return [i for i, a in enumerate(routine.arrays) if a.role in ("in", "inout")]


def _routine_cotangents(call: RuleCall, cts: Cotangents) -> Sequence[Maybe]:
    routine: Routine = call.attr("routine")
    made: Backwards = reverse_routines(routine, call.walks.options.ieee)
    builder = call.builder
    results = builder.sequential(made.forward, call.args)
    at_end = dict(zip(_differentiated_results_of_routine(made.forward), results, strict=True))
    arguments = dict(zip(_differentiated_arguments_of_routine(routine), call.args, strict=True))
    part_of = {array: part for part, array in enumerate(_differentiated_results_of_routine(routine))}
    for array, part in part_of.items():
        if part in call.results:
            call.replaced[call.results[part].number] = at_end[array].number

    def cotangent_of_array(array: int) -> Value:
        memory = routine.arrays[array]
        found = cts.get(part_of.get(array, -1))
        return builder.broadcast(builder.const(0, memory.dtype), memory.shape) if found is None else found

    given = [
        *map(cotangent_of_array, made.outputs),
        *(arguments[i] if routine.arrays[i].role == "in" else at_end[i] for i in made.primals),
        results[-1],
    ]
    found = dict(zip(made.outputs, builder.sequential(made.backward, given), strict=False))
    return [found.get(array) for array in _differentiated_arguments_of_routine(routine)]


def _routine_tangents(call: RuleCall, tangents: Sequence[Maybe]) -> Tangents:
    routine: Routine = call.attr("routine")
    moving = dict(zip(_differentiated_arguments_of_routine(routine), tangents, strict=True))
    made, floats = routine_with_tangents(routine, frozenset(i for i, t in moving.items() if t is not None))
    more = [
        zero_cotangent(call.builder, arg) if (t := moving[i]) is None else t
        for i, arg in zip(_differentiated_arguments_of_routine(routine), call.args, strict=True)
        if i in floats
    ]
    results = dict(
        zip(_differentiated_results_of_routine(made), call.builder.sequential(made, [*call.args, *more]), strict=True)
    )
    twins = {array: len(routine.arrays) + k for k, array in enumerate(floats)}
    return {
        part: results[twins[i]] if i in twins else None
        for part, i in enumerate(_differentiated_results_of_routine(routine))
    }


SEQUENTIAL = Linear(_routine_tangents, _routine_cotangents)
