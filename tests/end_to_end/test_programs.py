"""Random programs with views, aliases and assignment, on every layout: what they give and write is what NumPy does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.programs import Program, explore, outcomes


def test_random_programs() -> None:
    report = explore(60, 0, "cpu")
    assert not report.wrong, "\n".join(f"{o.wrong}\n{p.program()}" for p, o in report.wrong)
    assert report.statements > 200 and report.refused.total() < 40


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
]


@pytest.mark.parametrize(("argument", "statements", "results"), FOUND)
def test_found(argument: str, statements: str, results: str, tmp_path: Path) -> None:
    program = Program("found", (("x", argument),), ("x",), tuple(statements.split("; ")), tuple(results.split()))
    ((_, outcome),) = outcomes([program], tmp_path, "cpu", "found")
    assert not outcome.wrong and not outcome.refused, outcome
