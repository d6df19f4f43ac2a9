"""A number that no turn replaces keeps its kind: a sample of the table of `tests.loop_starts`."""

from __future__ import annotations

import random
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from tests.loop_starts import LOOPS, REPLACED, STARTS, TURNS, USES, programs
from tests.random_cases import names_in_file

SHARDS = 4


def outcome(function: Any, turns: int) -> Any:
    given = np.array([1.75, 2.5]), np.array([5, 9]), np.array([turns]), np.arange(20.0), 6
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return comparable(function(*given))
    except Exception as error:
        return next(kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "builtins")


def comparable(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [comparable(part) for part in value]
    if isinstance(value, dict):
        return {key: comparable(part) for key, part in value.items()}
    if value is None or isinstance(value, str):
        return value
    array = np.asarray(value)
    return str(array.dtype), repr(array.tolist())


@pytest.mark.parametrize("shard", range(SHARDS))
def test_numbers_that_no_turn_replaces_keep_their_kind(shard: int, tmp_path: Path) -> None:
    chosen = random.Random(shard).sample([*enumerate(programs())], 100)
    names = names_in_file(["import numpy as np\n", *(text for _, text in chosen)], tmp_path, f"starts{shard}")
    for number, text in chosen:
        function = names[f"f{number}"]
        compiled = kg.kernel_graph(function, device="cpu", untraceable="numpy")
        for turns in TURNS:
            assert outcome(compiled, turns) == outcome(function, turns), (text, turns)


def test_the_table_is_whole() -> None:
    assert len(STARTS) >= 16 and len(LOOPS) >= 7 and len(REPLACED) >= 12 and len(USES) >= 25
