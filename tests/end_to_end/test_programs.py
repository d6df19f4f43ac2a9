"""Random programs with views, aliases and assignment, on every layout: what they give and write is what NumPy does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.programs import SUITE, Program, is_rounding, outcomes
from tests.random_cases import explore


def test_random_programs() -> None:
    report = explore(SUITE, 60, 0, "cpu")
    assert not report.wrong, "\n".join(f"{o.wrong}\n{p.program()}" for p, o in report.wrong)
    assert report.calls > 80 and report.refused_cases < 40


NONE, SQUARE = "made((), 'f8', K)", "made((3, 3), 'f8', K)"
FOUR, EMPTY, WIDE = "made((4,), 'f8', K)", "made((0, 3), 'f8', K)", "np.broadcast_to(made((4,), 'f8', K), (2, 4))"
# what random programs found: the argument, statements, results
FOUND = [
    (FOUR, "a.flat[1] = np.array([1])", "a"),  # an element of a flat iterator takes one number
    (FOUR, "a.flat[9] = np.array([1])", "a"),
    (FOUR, "a.flat[1:] = [7, 8]; a.flat[[0, 0, 1]] = np.array([1, 2])", "a"),  # several take the values in turn
    (FOUR, "a.flat[1:1] = [7, 8]; a.flat[...] = np.array([])", "a"),
    (EMPTY, "v = np.zeros_like(a); w = np.vdot(v, v.copy() + 1)", "w"),  # of a memory of no bytes
    (FOUR, "v = np.array(a.max(), copy=None); w = v.T; v /= 2; u = np.asarray(a.max()); z = u.T; u += 1", "w z"),
    (FOUR, "v = np.array(a.max(), copy=False)", "v"),
    ("made((6,), 'i1', K)", "v = a[a > 0]; u = np.dot(v, v); w = v @ v; z = np.vdot(v, v)", "u w z"),
    (FOUR, "v = a[np.arange(4) % 2 == 0]; v.real[[1]] = 2.0", "v"),  # views of a selection
    ("made((4,), 'c16', K)", "v = a[a.real > 0]; w = np.real(v); w *= 2; v.imag *= 3; v = v.sum()", "v"),
    (FOUR, "v = a[np.arange(4) % 2 == 0]; w = np.asfortranarray(v); u = np.array(v, copy=None); v[...] = 0.5", "w u"),
    (f"np.broadcast_to({EMPTY}, (2, 0, 3))", "a.sort(axis=0)", "a"),  # read-only memory, in which nothing changes
    (WIDE, "a[...] = a", "a"),
    (WIDE, "a[1:1] = 3", "a"),
    (WIDE, "v = a.T; v[...] = v", "v"),
    ("made((6,), 'f2', K)", "v = np.einsum('i...->...', a); w = v.conj(); v += w", "w"),  # scalars, which never change
    (FOUR, "v = a.max().T; w = v; v += 1; u = np.take(a, 0); z = u.T; u += 1", "w z"),
    (FOUR, "v = np.select([a[0] > 0], [a[1]]); w = v; v += 1; u = a[0].copy(); z = u; u += 1", "w z"),
    ("made((6,), 'i8', K)", "for i, row in enumerate(a):\n    row[...] = i", "a"),
    (
        NONE,
        "v = np.nan_to_num(a, copy=False); a += 1; w = np.nan_to_num(a); a += 1",
        "v w",
    ),  # of no axis it is a scalar
    ("made((), 'i1', K)", "v = np.nan_to_num(a, copy=False); np.place(a, a > -9, [1, 2])", "v"),
    (NONE, "v = -a; np.nan_to_num(v, copy=False)", "v"),
    (NONE, "np.nan_to_num([a, 1.0], copy=False)", "a"),
    ("np.broadcast_to(made((4,), 'i8', K), (2, 4))", "v = np.nan_to_num(a, copy=False)", "v"),  # nothing is written
    (FOUR, "v = a[np.arange(4) % 2 == 0]; w = np.nan_to_num(v, copy=False); w += 1; w[0] = 9", "v"),
    (FOUR, "v = a[np.arange(4) < 3]; w = v.astype(v.dtype, copy=False); u = v.conj(); w[0] = 9; u[1] = 8", "v"),
    ("made((6,), '?', K)", "v = a[np.arange(6) % 2 == 0]; u = v ** 2; w = np.power(v, 2)", "u w"),
    (EMPTY, "v = a[np.arange(3)[:, None] * a.sum().astype(int), 1:1]", "v"),  # indices of nothing are none in range
    (FOUR, "v = np.concatenate([a, a]); v[::2] = a; v += 1", "v"),
    (
        "made((1, 4), 'c8', K)",
        "v = np.sign(np.repeat(a, 2, 0)); w = np.array([v.sum(), -1])",
        "w",
    ),  # complex128 of those
    ("made((3, 4), 'i1', K)", "v = a | 1; w = np.roll(v, -1, 0); w[[0, -1]] = v[[-1, 0]]", "w"),
    # beside a computed index, an array of no axis makes a copy too
    (
        "made((3, 4, 1), 'f8', K)",
        "v = a[a.argmin() % 3, np.array(1)]; v += 1",
        "a v",
    ),
    ("made((3, 4), 'f8', K)", "v = bumped(a[None, a.argmin() % 3, np.array(1), None])", "a v"),
    ("made((3, 4, 1), 'f8', K)", "v = a[a.argmin() % 3, np.int64(1)]; v += 1", "a v"),  # and a number a view
    (WIDE, "np.putmask(a, a > 0, [])", "a"),  # nothing changes, and yet NumPy refuses it
    (f"np.broadcast_to({EMPTY}, (2, 0, 3))", "np.putmask(a, a > 0, a)", "a"),
    (SQUARE, "v = a[:0, 0] > 0; w = a[v]; u = a[a[:0] > 0]; z = a * 2; z[v] = 7", "w u z"),  # a mask of none fits all
    # an out is filled with what is broadcast to it
    (FOUR, "np.matmul(a, a, out=a)", "a"),
    (SQUARE, "v = np.arange(3.0); v.clip(0, 1, out=a)", "a"),
    (SQUARE, "v = a.copy(); np.matmul(v, v[0], out=a)", "a v"),
    (
        NONE,
        "v = np.repeat(a, 2, 0); w = np.take(a, [0, 0], -1); u = np.compress([True], a, 0); z = np.squeeze(a, 0)",
        "u v w z",
    ),
]
OUT = [  # what writes into an `out` as it lies in memory, or as an array of the result's dtype
    *(
        "np.dot(a, a[0], out=v)",
        "np.linalg.multi_dot([a, a, a[0]], out=v)",
        "v.shape = 3, 1; np.linalg.multi_dot([a, a, a[0]], out=v)",
        "a.argmax(1, out=v)",
    ),
    *("np.take(a[0], [2, 1, 0], out=v)", "np.take(a[0], a[0].argsort(), 0, v, 'clip')"),
    *("np.compress([True, True, True], a[0], out=v)", "np.choose([0, 1, 0], [a[0], a[1]], out=v)"),
]
# where Python's values split the trace
SPLIT = [
    (FOUR, "v = a[a > 0]; w = v[None]; w *= 2; i = int(w.argmin()); w += i", "w v"),  # a reshape of a reshape
]


def test_last_digits_alone_are_rounding() -> None:
    program = Program("rounding", (("x", "made((4,), 'c8', K)"),), ("x",), ("v = a.astype(complex)",), ("v",))
    want = np.array([1.5 - 2j, 100.0])
    assert is_rounding(program, 0, want + 1e-5, want) and not is_rounding(program, 0, want + 1e-4, want)
    exact = Program("exact", (("x", FOUR),), ("x",), ("v = a + 1",), ("v",))
    assert not is_rounding(exact, 0, want + 1e-10, want) and not is_rounding(program, 0, want.real, want)


@pytest.mark.filterwarnings("ignore:Casting complex")
def test_what_where_leaves_out_is_not_lost(tmp_path: Path) -> None:
    """NumPy takes an `out` that it also reads through the result's dtype, and back: such a call is NumPy's."""
    lines = ("np.add(a.real, a.real, out=a, where=a.real > 0)",)
    program = Program("apart", (("x", "made((4,), 'c16', K)"),), ("x",), lines, ("a",))
    ((_, outcome),) = outcomes([program], tmp_path, "cpu", "apart")
    assert not outcome.wrong and not outcome.refused
    same = Program("same", (("x", FOUR),), ("x",), ("np.greater(a, 0, out=a, where=a > -2)",), ("a",))
    ((_, outcome),) = outcomes([same], tmp_path, "cpu", "same")
    assert not outcome.wrong and not outcome.refused


@pytest.mark.parametrize(("argument", "statements", "results"), FOUND)
def test_found(argument: str, statements: str, results: str, tmp_path: Path) -> None:
    program = Program("found", (("x", argument),), ("x",), tuple(statements.split("; ")), tuple(results.split()))
    ((_, outcome),) = outcomes([program], tmp_path, "cpu", "found")
    assert not outcome.wrong and not outcome.refused, outcome


@pytest.mark.filterwarnings("ignore:Casting complex")
@pytest.mark.parametrize("statement", OUT)
def test_found_out(statement: str, tmp_path: Path) -> None:
    """NumPy is as strict about each dtype and layout of an `out`, and casts alike."""
    kinds = [f"np.zeros(3, '{dtype}')" for dtype in ("f8", "f4", "i8", "i1", "?", "c16")]
    programs = [
        Program(f"out{i}", (("x", f"np.abs({SQUARE})"),), ("x",), (f"v = {kind}", *statement.split("; ")), ("v",))
        for i, kind in enumerate([*kinds, "np.zeros(6)[::2]", "np.zeros(6, 'i8')[::-2]"])
    ]
    for program, outcome in outcomes(programs, tmp_path, "cpu", "out"):
        assert not outcome.wrong and not outcome.refused, f"{outcome}\n{program.program()}"


@pytest.mark.parametrize(("argument", "statements", "results"), SPLIT)
def test_found_split(argument: str, statements: str, results: str, tmp_path: Path) -> None:
    program = Program("split", (("x", argument),), ("x",), tuple(statements.split("; ")), tuple(results.split()), True)
    ((_, outcome),) = outcomes([program], tmp_path, "cpu", "split")
    assert not outcome.wrong and not outcome.refused, outcome


def test_elements_of_a_bad_index_that_are_overwritten_unread_are_a_documented_difference(tmp_path: Path) -> None:
    made = "v = np.eye(3)[np.nonzero(a > 0)]"  # of which the shape alone is used
    for lines, results in (([made, "v[...] = 2.0"], "v"), ([made, "w = v * 0 + 1"], "a")):
        program = Program("f", (("x", "made((1, 9), 'f8', K)"),), ("x",), tuple(lines), tuple(results), True)
        assert not [o.wrong for _, o in outcomes([program], tmp_path, "cpu", "unread") if o.wrong]
    with pytest.raises(IndexError):  # it is no false alarm: NumPy raises
        np.eye(3)[np.nonzero(np.ones((1, 9)))]
