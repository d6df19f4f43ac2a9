"""Searches among values as kernels: among sorted ones by halving, among few one by one."""

from __future__ import annotations

import math

import numpy as np

from ..graph.builder import GraphBuilder
from ..graph.graph import Node, Value, Values
from .binary_search import LONGEST, decompose_binary_search, element_loader_of_search

SMALL = 32  # up to so many elements are looked for one by one


def decompose_searchsorted(builder: GraphBuilder, node: Node, args: Values) -> Value | str:
    """searchsorted(a, v) -> for each v a search by halving"""
    if len(args) != 2:
        return "a sorter"
    a, v = args
    dtype = np.result_type(a.dtype, v.dtype)
    if dtype.kind not in "iuf" or dtype.itemsize < 4:
        return f"comparisons of {dtype}"
    if a.ndim != 1 or not 0 < a.shape[0] <= LONGEST or not v.size:
        return f"no values, or more than {LONGEST} that are sorted"
    at = element_loader_of_search(builder, builder.cast(a, dtype), v.shape)
    return decompose_binary_search(builder, at, a.shape[0], builder.cast(v, dtype), node.options["side"])


def decompose_digitize(builder: GraphBuilder, node: Node, args: Values) -> Value | str:
    """digitize(x, edges) -> searchsorted, from behind where the edges fall"""
    x, edges = args
    (n,) = edges.shape
    dtype = comparison_dtype_of_decomposed_search(x, edges)
    if dtype is None or not 0 < n <= LONGEST or 0 in x.shape:
        return f"no values, more than {LONGEST} edges, or a dtype without kernels"
    side = "left" if node.options["right"] else "right"
    wanted, known = builder.cast(x, dtype), builder.cast(edges, dtype)
    at = element_loader_of_search(builder, known, x.shape)
    if n == 1:
        return decompose_binary_search(builder, at, n, wanted, side)
    before, after = (builder.slice(edges, [start], [1], (n - 1,)) for start in (0, 1))
    falls = builder.reduce("any", builder.map("greater", before, after), (0,))

    def place_counted_from_end(place: Value) -> Value:
        return builder.map("where", falls, builder.map("subtract", np.int64(n - 1), place), place)

    found = decompose_binary_search(builder, lambda place: at(place_counted_from_end(place)), n, wanted, side)
    return builder.map("where", falls, builder.map("subtract", np.int64(n), found), found)


def comparison_dtype_of_decomposed_search(x: Value, edges: Value) -> np.dtype[np.generic] | None:
    """A dtype with kernels in which values and edges compare as in their common one."""
    dtype = np.result_type(x.dtype, edges.dtype)
    if dtype.kind not in "biuf" or dtype.itemsize > 8:
        return None
    return dtype if dtype.itemsize >= 4 else np.dtype("f4" if dtype.kind == "f" else "i4")


def decompose_isin(builder: GraphBuilder, node: Node, args: Values) -> Value | str:
    """isin(x, tests) -> any(x[..., None] == tests, -1), of few tests"""
    x, tests = args
    count = math.prod(tests.shape)
    if not 0 < count <= SMALL:
        return f"more than {SMALL} elements to look for, or none"
    equal = builder.map("equal", builder.reshape(x, (*x.shape, 1)), builder.reshape(tests, (count,)))
    found = builder.reduce("any", equal, (x.ndim,))
    return builder.map("logical_not", found) if node.options["invert"] else found
