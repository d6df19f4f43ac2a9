"""NumPy's own tests as a source of calls (`python -m tests.numpy_suite`): two short files of them, and the shim."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests import numpy_suite


@pytest.mark.skipif(not Path(np.__file__).with_name("lib").joinpath("tests").is_dir(), reason="NumPy without its tests")
def test_calls_of_numpys_own_tests() -> None:
    command = [
        sys.executable,
        "-m",
        "tests.numpy_suite",
        "lib/tests/test_ufunclike.py",
        "lib/tests/test_twodim_base.py",
    ]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2], timeout=300)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    counts = dict(part.rsplit(" ", 1) for part in ended.stdout.splitlines()[-1].split("; "))
    assert int(counts["right"]) > 50


def test_what_is_rewritten() -> None:
    source = "x = np.ones(3)\ny = x[1:] @ x[...]\nx[0] = -y\nx += 1\nassert_(x < 3 < y)\n"
    text = numpy_suite.rewritten(source).splitlines()
    assert text[1:] == [
        "x = _kg_call(np.ones, 3)",
        "y = _kg_operator('MatMult', _kg_operator('Item', x, slice(1, None, None)), _kg_operator('Item', x, ...))",
        "_kg_operator('SetItem', x, 0, _kg_operator('USub', y))",
        "x = _kg_operator('IAdd', x, 1)",
        "_kg_call(assert_, x < 3 < y)",
    ]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (np.ones(2), np.ones(2, "f4")),
        (np.ones(2), np.ones((2, 1))),
        (np.ones(2), np.array([1, 1 + 1e-12])),
        (np.array([np.nan]), np.array([0.0])),
        ((np.ones(2), 1), (np.ones(2), 2)),
        ([1], [1, 2]),
        (None, 1),
    ],
)
def test_differences_are_seen(wanted: object, found: object) -> None:
    assert numpy_suite._difference(wanted, found) is not None
    assert numpy_suite._difference(wanted, wanted) is None


def test_copies_keep_strides_and_shared_memory() -> None:
    whole = np.arange(12.0).reshape(3, 4)
    given = [whole, whole[::-1, 1:], np.float32(2), whole.T]
    copies = numpy_suite._copies(given)
    assert [np.shape(c) for c in copies] == [np.shape(g) for g in given]
    assert copies[1].strides == given[1].strides and np.array_equal(copies[1], given[1])
    copies[0][...] = 7
    assert (copies[1] == 7).all() and (copies[3] == 7).all() and whole[0, 1] == 1
