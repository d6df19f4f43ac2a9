"""Plans over several devices: the one verifier proves them whole, and the mistakes that cross a part's border."""

from __future__ import annotations

from random import Random

import pytest

from kernelgraph.runtime.verify.plan import find_plan_violations
from tests.counts import examples
from tests.runtime.mutants import Mutation
from tests.runtime.oracles import is_unsafe, run
from tests.runtime.placed_plans import PLACED_MUTATIONS, random_placed_plan


def test_joined_plans_raise_no_alarm_and_compute_the_same_in_any_order() -> None:
    rng = Random(1)
    for turn in range(examples(300)):
        plan = random_placed_plan(rng)
        assert find_plan_violations(plan) == []
        assert not is_unsafe(plan)
        if turn % 5 == 0:
            assert run(plan, rng) == run(plan)


@pytest.mark.parametrize("mutation", PLACED_MUTATIONS, ids=lambda m: m.__name__)
def test_every_unsafe_mutant_of_a_joined_plan_is_caught(mutation: Mutation) -> None:
    rng = Random(3)
    unsafe = 0
    while unsafe < 60:
        plan = random_placed_plan(rng)
        mutants = list(mutation(rng, plan))
        for mutant in rng.sample(mutants, min(3, len(mutants))):
            caught = bool(find_plan_violations(mutant))
            if is_unsafe(mutant):
                unsafe += 1
                assert caught, f"{mutation.__name__}:\n{plan}\n{mutant}"
