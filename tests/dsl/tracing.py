"""Functions traced and interpreted, so that what a trace means is compared with NumPy without compiling anything."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

import kernelgraph as kg
from kernelgraph.compiler.interpret import interpret
from kernelgraph.dsl.tree import flatten, unflatten


def interpreted(function: Any, *args: Any, **options: Any) -> Any:
    """What `function` returns by way of its graph."""
    decorated = kg.kernel_graph(function, device="cpu") if not isinstance(function, kg.KernelGraph) else function
    captured, arguments, leaves = decorated._looked_at(args, options)
    numbers = captured.host(leaves)
    arrays = [np.asarray(x) for x, a in zip(leaves, arguments, strict=True) if a.spec is not None]
    outputs = interpret(captured.graph, [*arrays, *captured.arrays], numbers)
    found = {"array": outputs.__getitem__, "number": numbers.__getitem__, "static": lambda value: value}
    return unflatten(captured.tree, [found[kind](x) for kind, x in captured.results])


def assert_same(result: Any, expected: Any, ulps: float = 4) -> None:
    """The same structure, shapes and dtypes; values within `ulps` of the largest in the array, special ones equal."""
    results: list[Any] = []
    references: list[Any] = []
    tree, wanted = flatten(result, results), flatten(expected, references)
    assert tree.children == wanted.children and len(results) == len(references), (tree, wanted)
    for a, b in zip(results, references, strict=True):
        if not isinstance(b, (np.ndarray, np.generic)):
            assert type(a) is type(b) and repr(a) == repr(b)
            continue
        a, b = np.asarray(a), np.asarray(b)
        assert a.dtype == b.dtype and a.shape == b.shape, f"{a.dtype}{a.shape}, not {b.dtype}{b.shape}"
        if b.dtype.kind in "biu":
            np.testing.assert_array_equal(a, b)
        else:
            finite = np.abs(b[np.isfinite(b)])
            scale = float(finite.max()) if finite.size else 1.0
            np.testing.assert_allclose(a, b, rtol=0, atol=ulps * scale * float(np.finfo(b.dtype).eps))


def check(function: Any, *args: Any, ulps: float = 4, **options: Any) -> None:
    """The trace of `function` means what NumPy does."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        expected = function(*args, **options)
        assert_same(interpreted(function, *args, **options), expected, ulps)
