"""Sets of tasks as bits."""

from __future__ import annotations

import random

import pytest

from kernelgraph.runtime.program import dag


@pytest.mark.parametrize("block", [8, 512])
def test_transposed_masks_are_those_that_have_a_member(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dag, "BLOCK", block)
    rng = random.Random(1)
    for _ in range(200):
        width = rng.choice([1, 8, 9, 70])
        masks = [rng.getrandbits(width) for _ in range(rng.randrange(40))]
        columns = rng.sample(range(width), rng.randrange(width + 1))
        expected = [
            dag.bitmask_of_members([i for i, mask in enumerate(masks) if mask >> column & 1]) for column in columns
        ]
        assert dag.transposed_bitmasks(masks, columns) == (expected if masks else [])
