"""Python's numbers that values decide keep Python's meaning: a sample of the table of `tests.python_numbers`."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.python_numbers import BINARY, STATEMENTS, UNARY, WAYS, cases, run

SHARDS = 4


@pytest.mark.parametrize("shard", range(SHARDS))
def test_operations_on_numbers_that_values_decide(shard: int, tmp_path: Path) -> None:
    chosen = random.Random(shard).sample([*cases()], 60)
    faults, counts = run(chosen, tmp_path, str(shard))
    assert not faults, "\n".join(faults)
    assert counts["compiled"] > counts["in NumPy"] / 2


def test_the_table_has_all_operators() -> None:
    ways = sum(map(len, WAYS.values()))
    assert ways >= 50 and len(UNARY) >= 150 and len(BINARY) >= 50 and len(STATEMENTS) >= 5
