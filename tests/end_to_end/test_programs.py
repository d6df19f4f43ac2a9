"""Random programs with views, aliases and assignment, on every layout: what they give and write is what NumPy does."""

from __future__ import annotations

from tests.programs import explore

# statements that still go wrong (templates of program_parts): each that is mended is taken out
EXPECTED_TO_FAIL = frozenset(
    {
        "$a ^= 1",
        "$a, $b = $b, $a\n$a[...] = $s",
        "$a.imag[...] = $s",
        "$a[$a > $s] = $b.sum()",
        "$a[$j, $j] += $s",
        "$n = np.add.reduce($a)",
        "np.clip($a, -1, 1, out=$a)",
    }
)


def test_random_programs() -> None:
    report = explore(60, 0, "cpu", avoid=EXPECTED_TO_FAIL)
    assert not report.wrong, "\n".join(f"{o.wrong}\n{p.program()}" for p, o in report.wrong)
    assert report.statements > 200 and report.refused.total() < 40
