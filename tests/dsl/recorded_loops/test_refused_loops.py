"""Long loops whose bodies may be refused: a right answer after few traces, compiled or in NumPy, with source or not."""

from __future__ import annotations

import importlib.util
import itertools
import textwrap
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.dsl.jit.trace_function import TraceAttempt

MOST_TRACES = 6  # of one call: the function begins again for numbers that decide, and for what cannot be put back

# what computes an element of `out` from row `i` of `x`
THINGS = {
    "sort": "np.sort(x[i])[1]",
    "median": "np.median(x[i])",
    "determinant": "np.linalg.det(np.outer(x[i], x[i]) + np.eye(3))",
    "joined": "np.concatenate([x[i], x[i - 1]]).sum()",
    "raveled": "x[i : i + 2].ravel()[-1]",
    "list": "x[i, 0] * weights[i % 3]",
    "text": "x[i, 0] * len(str(i))",
    "iterator": "x[i, 0] * next(numbers)",
    "object": "x[i, 0] * {'a': 2.0}.get('abc'[i % 3], 1.0)",
}
LOOPS = {
    "for": """
        for i in range(N):
            out[i] = THING
    """,
    "while": """
        i = 0
        while i < N:
            out[i] = THING
            i += 1
    """,
    "for in for": """
        for k in range(N // 4):
            for m in range(4):
                i = 4 * k + m
                out[i] = THING
    """,
    "triangle": """
        for k in range(20):
            for i in range(k):
                out[i] += THING
    """,
    "while in for": """
        for k in range(N // 10):
            i = 10 * k
            while i < 10 * k + 10:
                out[i] = THING
                i += 1
    """,
    "counter": """
        i = 0
        for k in range(N // 5):
            for m in range(5):
                out[i] = THING
                i += 1
    """,
    "generator": """
        def turns():
            yield from range(N)
        for i in turns():
            out[i] = THING
    """,
    "comprehension": """
        out[:] = np.array([THING for i in range(N)])
    """,
    "caught": """
        for i in range(N):
            try:
                out[i] = THING
            except ZeroDivisionError:
                out[i] = 0
    """,
    "inner function": """
        def turn(i):
            out[i] = THING
        for i in range(N):
            turn(i)
    """,
}
FUNCTION = """
import numpy as np


class Program:
    @staticmethod
    def run(x, out):
        weights, numbers = [1.0, 2.0, 3.0], iter(range(10_000))
{body}
        return out, x.sum()


run = Program.run
"""
N = 200


def module_of(text: str, path: Path | None) -> Any:
    """path: of the file that has the source, if any has."""
    if path is None:
        module = ModuleType("made")
        exec(compile(text, "<made>", "exec"), vars(module))
        return module
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("has_source", [True, False], ids=["source", "no source"])
@pytest.mark.parametrize(("loop", "thing"), itertools.product(LOOPS, THINGS))
def test_refused_bodies(
    loop: str, thing: str, has_source: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = textwrap.indent(textwrap.dedent(LOOPS[loop]).strip(), " " * 8)
    text = FUNCTION.format(body=body.replace("THING", THINGS[thing]).replace("N", str(N)))
    run = module_of(text, tmp_path / "refused.py" if has_source else None).run
    traces: list[TraceAttempt] = []
    trace = TraceAttempt.run
    monkeypatch.setattr(TraceAttempt, "run", lambda attempt: (traces.append(attempt), trace(attempt))[1])
    x = np.random.default_rng(1).random((N + 2, 3))
    want, ours = run(x, np.zeros(N)), kg.kernel_graph(run, device="cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        got = ours(x, np.zeros(N))
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(np.asarray(a), b, rtol=1e-10)
    assert len(traces) <= MOST_TRACES
