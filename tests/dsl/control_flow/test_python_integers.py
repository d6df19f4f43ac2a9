"""Ints of Python's that values decide: never a silent wrap; a sample of the table of `tests.python_integers`."""

from __future__ import annotations

import random
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from tests.python_integers import MAGNITUDES, TURNS, USES, WAYS, programs
from tests.random_cases import names_in_file

SHARDS = 4


def outcome(function: Any, magnitude: int, turns: int) -> Any:
    y = np.array([magnitude, magnitude // 2 + 1], "i8")
    x = np.array([float(np.clip(magnitude, -(2**62), 2**62)), 1.0])
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return comparable(function(x, y, np.array([turns]), 7))
    except Exception as error:
        return next(kind for kind in type(error).__mro__ if kind.__module__ == "builtins")


def comparable(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [comparable(part) for part in value]
    return value if type(value) in (bool, int, float) else np.asarray(value).tolist()


@pytest.mark.parametrize("shard", range(SHARDS))
def test_ints_are_as_long_as_they_need(shard: int, tmp_path: Path) -> None:
    chosen = random.Random(shard).sample([*enumerate(programs())], 40)
    names = names_in_file(["import numpy as np\n", *(text for _, (_, text) in chosen)], tmp_path, f"ints{shard}")
    for number, (name, _) in chosen:
        function = names[f"f{number}"]
        compiled = kg.kernel_graph(function, device="cpu", untraceable="numpy")
        for magnitude in MAGNITUDES:
            for turns in TURNS:
                wanted, got = (outcome(f, magnitude, turns) for f in (function, compiled))
                assert got == wanted, (name, magnitude, turns)


@pytest.mark.parametrize("way", [way for way in WAYS if way not in ("item", "long start")])
def test_ints_that_fit_are_compiled(way: str, tmp_path: Path) -> None:
    (text,) = (text for name, text in programs() if name == f"{way}: n")
    compiled = kg.kernel_graph(
        names_in_file([text], tmp_path, "fits")[text[4 : text.index("(")]], device="cpu", untraceable="numpy"
    )
    outcome(compiled, 3, 3)
    assert "cannot" not in compiled.why() and "no value yet" not in compiled.why()


@pytest.mark.parametrize("use", [use for use in USES if "2**6" in use])
def test_an_int_beside_one_of_more_bits(use: str, tmp_path: Path) -> None:
    for way in ("int()", "long start", "branch"):
        ((text, function),) = (
            (text, function)
            for name, text in programs()
            if name == f"{way}: {use}"
            for function in names_in_file(["import numpy as np\n", text], tmp_path, way.strip("()")).values()
            if callable(function)
        )
        compiled = kg.kernel_graph(function, device="cpu", untraceable="numpy")
        for magnitude in MAGNITUDES:
            assert outcome(compiled, magnitude, 3) == outcome(function, magnitude, 3), text


def test_the_table_is_whole() -> None:
    assert len(WAYS) >= 15 and len(USES) >= 30


def test_powers_of_large_numbers_are_not_computed_while_tracing() -> None:
    """The type of such a power is found with a small one: the large one has millions of digits."""

    @kg.kernel_graph(device="cpu", untraceable="refuse")
    def power(x: Any) -> Any:
        n = 1 if x.sum() > 100 else 0
        return n**20_000_000

    assert [int(power(np.full(2, value))) for value in (1.0, 100.0)] == [0, 1]
