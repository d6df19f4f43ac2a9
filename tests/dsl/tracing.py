"""Functions traced and interpreted, so that what a trace means is compared with NumPy without compiling anything."""

from __future__ import annotations

import warnings
from copy import deepcopy
from typing import Any

import numpy as np

import kernelgraph as kg
from kernelgraph.compiler.graph.interpret import interpret_graph
from kernelgraph.dsl.core.pytree import flatten, unflatten


def interpreted(function: Any, *args: Any, **options: Any) -> Any:
    """What `function` returns by way of its graph, or IndexError where an output tells of a failure."""
    decorated = kg.kernel_graph(function, device="cpu") if not isinstance(function, kg.KernelGraph) else function
    captured, arguments, leaves = decorated._trace_for_inspection(args, options)
    numbers = captured.host(leaves)
    arrays = [np.asarray(x) for x, a in zip(leaves, arguments, strict=True) if a.spec is not None]
    outputs = interpret_graph(captured.graph, [*arrays, *captured.arrays], numbers)
    if any(np.any(outputs[number]) for which, _ in captured.failures for number in which):
        raise IndexError(f"{captured.graph.name}: an output tells of a failure")
    found = {"array": outputs.__getitem__, "number": numbers.__getitem__, "static": lambda v: v, "fresh": deepcopy}
    return unflatten(captured.tree, [found[kind](x) for kind, x in captured.results])


def magnitudes(function: Any, *args: Any) -> Any:
    """What a function of sums and products alone gives for the absolute values of its arguments: what the error of its
    results is in proportion to, where their terms cancel (Higham, Accuracy and Stability, 2002, section 3.5)."""
    leaves: list[Any] = []
    tree = flatten(args, leaves)
    return function(*unflatten(tree, [np.abs(x) if isinstance(x, np.ndarray) else x for x in leaves]))


def assert_same(result: Any, expected: Any, ulps: float = 4, room: Any = None) -> None:
    """The same structure, shapes and dtypes; values within `ulps` of the largest in the array, or in that of `room` in
    its place, special ones equal."""
    results: list[Any] = []
    references: list[Any] = []
    tree, wanted = flatten(result, results), flatten(expected, references)
    sizes: list[Any] = []
    flatten(expected if room is None else room, sizes)
    assert tree.children == wanted.children and len(results) == len(references), (tree, wanted)
    for a, b, size in zip(results, references, sizes, strict=True):
        if not isinstance(b, (np.ndarray, np.generic)):
            assert type(a) is type(b) and repr(a) == repr(b)
            continue
        a, b = np.asarray(a), np.asarray(b)
        assert a.dtype == b.dtype and a.shape == b.shape, f"{a.dtype}{a.shape}, not {b.dtype}{b.shape}"
        if b.dtype.kind in "biu":
            np.testing.assert_array_equal(a, b)
        else:
            finite = np.abs(np.asarray(size)[np.isfinite(size)])
            scale = float(finite.max()) if finite.size else 1.0
            np.testing.assert_allclose(a, b, rtol=0, atol=ulps * scale * float(np.finfo(b.dtype).eps))


def check(function: Any, *args: Any, ulps: float = 4, products: bool = False, **options: Any) -> None:
    """The trace of `function` means what NumPy does. products: it is one of `magnitudes`."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        expected = function(*args, **options)
        room = magnitudes(function, *args) if products else None
        assert_same(interpreted(function, *args, **options), expected, ulps, room)
