"""A `while` that indexes by what it counts is one kernel, like a `for`: generated ones, and what they give."""

from __future__ import annotations

import importlib.util
import itertools
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg

# how a loop goes on, beside `i < len(x)`
TESTS = {"counted": "", "until a value": " and total < level", "two counters": " and j < len(y)"}
STEPS = {
    "up": "i += 1",
    "by value": "if x[i] <= y[j % len(y)]:\n    i += 1\nelse:\n    i += 2\n    j += 1",
    "both": "i += 1\nj += 1",
}
EXITS = {
    "none": "",
    "break": "if x[i] > 0.97:\n    break",
    "continue": "if x[i] < 0.2:\n    i += 1\n    j += 1\n    continue",
    "return": "if total > 1.5 * level:\n    return total",
}
ENDS = {"plain": "", "else": "else:\n    total = total + 100.0"}
FUNCTION = """
import numpy as np


def run(x, y, level):
    i = j = 0
    total = 0.0
    out = np.zeros(len(x) + 2)
    while i < len(x){test}:
{body}
{end}
    while j < len(y):
        total += y[j]
        j += 1
    out[0] = i
    out[1] += j
    return {result}
"""
CASES = [*itertools.product(TESTS, STEPS, EXITS, ENDS)]


@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_whiles(case: tuple[str, ...], tmp_path: Path) -> None:
    test, step, leave, end = case
    body = "\n".join([EXITS[leave], "total += x[i]", "out[i] = total + j", STEPS[step]])
    text = FUNCTION.format(
        test=TESTS[test],
        body=textwrap.indent(body, " " * 8),
        end=textwrap.indent(ENDS[end], " " * 4),
        result="total" if leave == "return" else "out, total, i, j",
    )
    path = tmp_path / "whiles.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location("whiles", path)
    assert spec is not None and spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    ours = kg.kernel_graph(module.run, device="cpu")
    rng = np.random.default_rng(3)
    for size in (60, 90):
        x, y = rng.random(size), rng.random(40)
        for level in (3.0, 1e9):
            got, want = ours(x, y, np.float64(level)), module.run(x, y, np.float64(level))
            pairs = zip(got, want, strict=True) if isinstance(want, tuple) else [(got, want)]
            for a, b in pairs:
                np.testing.assert_allclose(np.asarray(a), b, rtol=1e-12)
        nodes = ours.graph(x, y, np.float64(3.0)).nodes
        assert len(nodes) < 200 and any(node.op == "sequential" for node in nodes)
        assert not any(node.op == "loop" for node in nodes) and "in NumPy" not in ours.why()
