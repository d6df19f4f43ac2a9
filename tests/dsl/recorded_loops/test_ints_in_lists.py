"""Python's ints in lists of recorded loops, which have any number of bits: each way to get beyond 64."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from tests.random_cases import names_in_file
from tests.turn_programs import recorded

GROWN = {  # what the list `ys` begins as, what is appended to it, and what is read of it
    "a large number added": ("[k]", "ys[-1] + 10**18", "ys[-1]"),
    "a large number subtracted": ("[k]", "ys[-1] - 10**18", "ys[-1]"),
    "doubled": ("[k + 1]", "ys[-1] + ys[-1]", "ys[-1]"),
    "multiplied": ("[k]", "ys[-1] * 3 + 1", "ys[-1]"),
    "a sum": ("[]", "10**18 + i + k", "sum(ys)"),
    "a sum of negative ones": ("[]", "i * k - 10**18", "sum(ys)"),
    "the sum of two": ("[2**62 - 1]", "2**62 - i", "(ys[-1] + ys[-2] + ys[-3])"),
    "a row": ("[]", "[10**18 + i, 2**62 + k]", "(ys[-1][0] * ys[-1][1])"),
    "small ones": ("[k]", "ys[-1] + i", "(ys[-1] + sum(ys))"),
}


@pytest.mark.parametrize("kind", GROWN)
def test_an_int_beyond_64_bits_is_pythons(kind: str, tmp_path: Path) -> None:
    begins, appended, read = GROWN[kind]
    text = f"""
def grown(x):
    for k in range(20):
        ys = {begins}
        for i in range(80):
            ys.append({appended})
        x[k] = {read} % 1000003
    return x
"""
    function = names_in_file([text], tmp_path, f"ints_{[*GROWN].index(kind)}")["grown"]
    x: Any = np.arange(20)
    with recorded():
        found = kg.kernel_graph(function, device="cpu")(x.copy())
    np.testing.assert_array_equal(np.asarray(found), function(x.copy()))


ASSIGNED = {  # what the list `ys` begins as, and what turn `i` assigns
    "a large number added": ("[0] * 80", "ys[i] = ys[i - 1] + 10**18"),
    "large at first": ("[2**62 + 9] * 80", "ys[i] = ys[i] + ys[i - 1]"),
    "of an array": ("[int(v) for v in x] * 4", "ys[i] = ys[i] + ys[i - 1]"),
    "doubled": ("[1] * 80", "ys[i] = ys[i - 1] * 2"),
    "or an array's": (
        "[10**18] * 80",
        "if x[i % 20] < 0:\n            ys[i] = x[0]\n        else:\n            ys[i] *= 99",
    ),
    "of a table": ("[[1] * 4 for _ in range(80)]", "ys[i][0] = ys[i - 1][0] + ys[i][1] + 10**18"),
}


@pytest.mark.parametrize("kind", ASSIGNED)
def test_an_assigned_int_beyond_64_bits_is_pythons(kind: str, tmp_path: Path) -> None:
    begins, assigned = ASSIGNED[kind]
    text = f"""
def grown(x):
    ys = {begins}
    for i in range(1, 80):
        {assigned}
    return ys
"""
    function = names_in_file([text], tmp_path, f"assigned_{[*ASSIGNED].index(kind)}")["grown"]
    x: Any = np.arange(20) + 2**62
    with recorded(), warnings.catch_warnings():
        warnings.simplefilter("ignore", kg.FallbackWarning)
        found = kg.kernel_graph(function, device="cpu")(x.copy())
    assert [y if isinstance(y, list) else int(y) for y in found] == function(x.copy())
