"""Random collectives over ranks, and what NumPy says that each rank gets: the same cases for every world."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

import kernelgraph as kg

DTYPES = (
    "bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64",
    "float16", "bfloat16", "float32", "float64", "complex64", "complex128",
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """body: what each rank runs on its part of `given` (along axis 0). wanted: each rank's result."""

    text: str
    given: Any
    body: Callable[[Any], Any]
    wanted: list[Any]
    exact: bool


def dtype_named(name: str) -> np.dtype[Any]:
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def numbers(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    drawn = rng.integers(0 if dtype.kind in "bu" else -3, 4, shape)
    if dtype.kind == "c":
        return (drawn + 1j * rng.integers(-3, 4, shape)).astype(dtype)
    return (drawn * 0.5 if dtype.kind not in "biu" else drawn).astype(dtype)


def draw(seed: int, size: int) -> Case:
    """A case for so many ranks."""
    rng = np.random.default_rng(seed)
    dtype = dtype_named(str(rng.choice(DTYPES)))
    rank = int(rng.integers(1, 4))
    local = [int(n) * (size if rng.random() < 0.7 else 1) for n in rng.integers(0, 4, rank)]
    if rng.random() < 0.1:
        local[0] = 40_000  # beyond what is joined in one message
    given = numbers(rng, (local[0] * size, *local[1:]), dtype)
    parts = np.split(given, size) if size > 1 else [given]
    kind = str(
        rng.choice(["all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "permute", "several"])
    )
    axis = int(rng.integers(-rank, rank))
    hows = [*(() if dtype.kind == "b" else ("sum",)), *(() if dtype.kind == "c" else ("max", "min"))]
    if dtype.kind in "fcV":
        hows.append("mean")
    how = str(rng.choice(hows))
    text = f"seed {seed}: {kind} {how} of {dtype}{local}, axis {axis}, {size} ranks"
    exact = dtype.kind in "biu" or how in ("max", "min")

    def join(values: list[Any]) -> Any:
        if how in ("max", "min"):
            return (np.maximum if how == "max" else np.minimum).reduce(values)
        wide = dtype_named("float32") if dtype.itemsize == 2 and dtype.kind in "fV" else dtype
        total = sum(v.astype(wide) for v in values[1:]) + values[0].astype(wide) if size > 1 else values[0].astype(wide)
        return (total / size if how == "mean" else total).astype(dtype)

    if kind in ("reduce_scatter", "all_to_all") and local[axis] % size:
        kind = "all_gather"
    if kind == "several" and local[0]:
        add = np.logical_or if dtype.kind == "b" else np.add

        def several(x: Any) -> Any:
            return [
                kg.all_reduce(add(x, x), how),
                kg.all_reduce(kg.all_reduce(x, how), how),
                add(kg.all_gather(x), x[:1]),
            ]

        twice, gathered = join([join(parts)] * size), np.concatenate(parts)
        doubled = join([add(p, p) for p in parts])
        return Case(text, given, several, [[doubled, twice, add(gathered, p[:1])] for p in parts], exact)
    if kind in ("all_reduce", "several"):
        return Case(text, given, lambda x: [kg.all_reduce(x, how)], [[join(parts)]] * size, exact)
    if kind == "all_gather":
        return Case(text, given, lambda x: [kg.all_gather(x, axis)], [[np.concatenate(parts, axis)]] * size, True)
    if kind == "reduce_scatter":
        whole = np.split(join(parts), size, axis)
        return Case(text, given, lambda x: [kg.reduce_scatter(x, how, axis)], [[w] for w in whole], exact)
    if kind == "broadcast":
        root = int(rng.integers(size))
        return Case(text, given, lambda x: [kg.broadcast(x, root)], [[parts[root]]] * size, True)
    if kind == "all_to_all":
        to = int(rng.integers(-rank, rank))
        pieces = [np.split(p, size, axis) for p in parts]
        sent = [[np.concatenate([pieces[s][r] for s in range(size)], to)] for r in range(size)]
        return Case(text, given, lambda x: [kg.all_to_all(x, axis, to)], sent, True)
    targets = rng.permutation(size)[: int(rng.integers(1, size + 1))]
    pairs = [(int(a), int(b)) for a, b in zip(rng.permutation(size), targets, strict=False)]
    source = {b: a for a, b in pairs}
    moved = [[parts[source[r]] if r in source else np.zeros_like(parts[r])] for r in range(size)]
    return Case(text, given, lambda x: [kg.permute(x, pairs)], moved, True)


def check(case: Case) -> None:
    """On each rank: run the case on a mesh of all ranks."""
    mesh = kg.Mesh(kg.distributed.size())
    results = kg.kernel_graph(case.body, mesh=mesh, in_axes=0, out_axes=None, device=None)(case.given)
    for result, want in zip(results, case.wanted[kg.distributed.rank()], strict=True):
        got = result.parts[0].numpy()
        assert got.dtype == want.dtype and got.shape == want.shape, f"{case.text}: {got.dtype}{got.shape}"
        if case.exact:
            np.testing.assert_array_equal(got, want, case.text)
        else:
            loose = 2e-2 if got.dtype.itemsize == 2 else 1e-5
            as_wide = (x.astype(np.complex128 if x.dtype.kind == "c" else np.float64) for x in (got, want))
            np.testing.assert_allclose(*as_wide, rtol=loose, atol=loose, err_msg=case.text)
