"""Reductions over ranks, a row for each dtype and number of elements, on every transport: NumPy's results, bit for bit.

python -m kernelgraph.run -n 3 -m tests.rank_reductions [COUNT ...]: the whole table over MPI, 1 to 10^6 elements.
"""

from __future__ import annotations

import functools
import itertools
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

import kernelgraph as kg
from tests.rank_cases import DTYPES, dtype_named

COUNTS = (1, 8, 5000, 1_000_000)  # with the agreement; in what vectors hold and not; after it; in pieces
JOINS = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}


def operations(dtype: np.dtype[Any]) -> tuple[str, ...]:
    """Those that make sense on a mesh; `mean` is no operation of `kg.distributed`."""
    if dtype.kind == "b":
        return "max", "min"
    return {"c": ("sum", "prod", "mean"), "i": (*JOINS,), "u": (*JOINS,)}.get(dtype.kind, (*JOINS, "mean"))


def values(dtype: np.dtype[Any], rank: int, shape: tuple[int, ...]) -> Any:
    """Whole numbers of the whole range, which wrap; floats whose sums and products are exact, and NaN."""
    rng = np.random.default_rng([rank, *shape])
    if dtype.kind in "iu":
        ends = np.iinfo(dtype)
        found = rng.integers(ends.min, ends.max, shape, dtype, endpoint=True)
        found[..., :1] = ends.max
        return found
    found = rng.integers(-3, 4, shape) * 0.5
    if dtype.kind == "c":
        return (found + 1j * (rng.integers(-1, 2, shape) * 0.5)).astype(dtype)
    if dtype.kind != "b":
        found[rng.random(shape) < 0.05] = np.nan
    return found.astype(dtype)


def joined(op: str, given: Sequence[Any]) -> Any:
    """NumPy's, of narrow floats with one rounding in the end."""
    dtype = given[0].dtype
    wide = np.dtype(np.float32) if dtype.itemsize == 2 and dtype.kind in "fV" else dtype
    found = functools.reduce(JOINS["sum" if op == "mean" else op], [x.astype(wide) for x in given])
    return (found / wide.type(len(given)) if op == "mean" else found).astype(dtype)


def body(x: Any, ops: tuple[str, ...]) -> Any:
    return [(kg.all_reduce(x[0], op), kg.reduce_scatter(x, op)) for op in ops]


def check(mesh: kg.Mesh, name: str, count: int) -> int:
    """Compare a row on a mesh, of ranks also those of `kg.distributed`. How many results were compared."""
    dtype, size, compared = dtype_named(name), len(mesh), 0
    every = [values(dtype, r, (size, count)) for r in range(size)]
    ops = operations(dtype)
    program = kg.kernel_graph(lambda x: body(x, ops), mesh=mesh, in_axes=0, out_axes=None)
    results = program(np.concatenate(every))
    for op, (whole, part) in zip(ops, results, strict=True):
        want = joined(op, every)
        text = f"{op} of {count} {name}"
        for place, one, scattered in zip(mesh.positions, whole.parts, part.parts, strict=True):
            compare(f"all_reduce {text}", one.numpy(), want[0])
            compare(f"reduce_scatter {text}", scattered.numpy(), want[place : place + 1])
            compared += 2
        if mesh.communicator is not None and op in JOINS:
            compare(f"kg.distributed {text}", kg.distributed.all_reduce(every[mesh.first][0], op), want[0])
            compared += 1
    return compared


def compare(text: str, got: Any, want: Any) -> None:
    assert got.dtype == want.dtype and got.shape == want.shape, f"{text}: {got.dtype}{got.shape}"
    wide = [x.astype(np.float32) if x.dtype.kind == "V" else x for x in (got, want)]
    np.testing.assert_array_equal(*wide, err_msg=text)


def table(counts: Sequence[int] = COUNTS) -> Iterator[tuple[str, int]]:
    return itertools.product(DTYPES, counts)


if __name__ == "__main__":
    kg.distributed.init()
    with kg.device("cpu"):
        rows = [*table([*map(int, sys.argv[1:])] or COUNTS)]
        compared = sum(check(kg.Mesh(kg.distributed.size()), name, count) for name, count in rows)
        if kg.distributed.rank() == 0:
            print(f"{len(rows)} rows, {compared} results on each of {kg.distributed.size()} ranks are NumPy's")
