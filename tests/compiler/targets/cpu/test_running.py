"""Running sums and products on the CPU have NumPy's bits, however the arrays lie and the results are wanted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import kernelgraph as kg

DTYPES = ["f8", "f4", "f2", "i8", "i4", "i1", "u2", "?", "c8"]
VIEWS: list[Any] = [
    lambda x: x,
    lambda x: x[::-1],
    lambda x: x[:, ::-2],
    lambda x: x.T,
    lambda x: x.ravel(),
    lambda x: x[:1],
    lambda x: x[:0],
    lambda x: x[:, :, None] * x[:, None, :1],
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
def test_numpys_bits(name: str, dtype: str) -> None:
    rng = np.random.default_rng(5)
    x = (rng.standard_normal((7, 33)) * 3).astype(dtype)
    if x.dtype.kind == "f":
        x[0, :2], x[1, 3], x[2, 4] = -0.0, np.inf, np.nan

    def programs(x):
        run = getattr(np, name)
        seen = [view(x) for view in VIEWS]
        every = [run(v, axis) for v in seen for axis in range(len(v.shape))]
        back = [r[::-1] for r in every] + [run(x.ravel()[::-1])[::-1], run(x[:, ::-1], 1)[:, ::-1]]
        return *every, *back, run(x, dtype=np.float64 if x.dtype.kind in "fbiu" else None)

    with np.errstate(all="ignore"):
        wanted = programs(x)
    for mine, theirs in zip(kg.kernel_graph(programs, device="cpu")(x), wanted, strict=True):
        mine = np.asarray(mine)
        assert mine.dtype == theirs.dtype and mine.shape == theirs.shape
        same = (mine == theirs) & (np.signbit(mine.real) == np.signbit(theirs.real))
        assert (same | (np.isnan(mine) & np.isnan(theirs))).all()


def test_a_reversed_sum_is_one_task() -> None:
    text = str(kg.kernel_graph(lambda x: np.cumsum(x[::-1])[::-1], device="cpu").program(kg.spec((1000,), np.float64)))
    assert "1 tasks, 2 buffers" in text
