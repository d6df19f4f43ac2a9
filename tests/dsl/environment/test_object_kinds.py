"""The table of kinds of Python objects x folds: decorated functions do with each kind what Python does."""

from __future__ import annotations

import collections

from tests.object_folds import ALL_LAYERS, EXPECTED_TO_FAIL, FOLDS, cells, outcomes

EVERY = 50  # cells; the whole table is run by `python -m tests.object_folds`


def test_kinds_of_objects_by_folds() -> None:
    counts: collections.Counter[str] = collections.Counter()
    wrong = []
    for cell, outcome, in_numpy in outcomes([c for c in cells() if not c.may_fail][::EVERY]):
        counts["refused" if outcome.refused else "in NumPy" if in_numpy else "compiled"] += 1
        if outcome.wrong:
            wrong.append(f"{cell.name}: {outcome.wrong}\n{cell.program()}")
    assert not wrong, "\n".join(wrong)
    assert counts["compiled"] > 100 and counts["refused"] < 10, counts


def test_what_is_expected_to_fail_is_in_the_table() -> None:
    assert {(cell.row.kind, cell.fold) for cell in cells()} >= EXPECTED_TO_FAIL
    assert len(ALL_LAYERS) > 150 and len(FOLDS) > 60
