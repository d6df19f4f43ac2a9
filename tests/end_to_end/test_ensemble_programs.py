"""Random functions with `while` under `kg.vmap`: each row is what NumPy gives for it, to the bit."""

from __future__ import annotations

from tests.ensemble_programs import check


def test_random_ensembles() -> None:
    wrong, seen = check(11, 24)
    assert not wrong, "\n\n".join(wrong)
    assert seen["in kernels"] >= 20, seen
