"""Elements that a mask chooses are written, and no others, while other threads write those."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.runtime.engine.masked_copy import LEAST_BYTES, copy_where

DTYPES = ["?", "i1", "u2", "f2", "f4", "i8", "f8", "c8", "c16"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("extra", [0, 1, 31, 33])
def test_is_what_numpy_copies(dtype: str, extra: int) -> None:
    rng = np.random.default_rng(extra)
    n = LEAST_BYTES // np.dtype(dtype).itemsize + extra
    before, values = ((rng.random(n) * 100).astype(dtype) for _ in range(2))
    for part in (0.0, 0.5, 1.0):
        mask = rng.random(n) < part
        for new in (values, values[3:4], np.asarray(values[5]), values[::-1]):
            found, wanted = before.copy(), before.copy()
            copy_where(found, new, mask)
            np.copyto(wanted, new, where=mask)
            np.testing.assert_array_equal(found, wanted)


def test_other_layouts_and_dtypes_are_left_to_numpy() -> None:
    rng = np.random.default_rng(0)
    mask = rng.random((200, 300)) < 0.5
    for target in (
        np.zeros((200, 600))[:, ::2],
        np.zeros((300, 200)).T,
        np.zeros((200, 300), ">f8"),
        np.zeros((200, 300), "i4"),
    ):
        wanted = target.copy()
        new = np.arange(60000, dtype=target.dtype.newbyteorder("=")).reshape(200, 300)
        np.copyto(wanted, new, where=mask)
        copy_where(target, new, mask)
        np.testing.assert_array_equal(target, wanted)


def assign(x: Any, mask: Any, value: Any) -> None:
    x[mask] = value


def add(x: Any, mask: Any, value: Any) -> None:
    x[mask] += value


@pytest.mark.parametrize("function", [assign, add])
def test_what_another_thread_writes_between_stays(function: Any) -> None:
    compiled = kg.kernel_graph(function, device="cpu")
    x, mask = np.zeros(LEAST_BYTES), np.arange(LEAST_BYTES) % 2 == 0
    compiled(x, mask, 1.0)
    x[:] = 0
    stop = threading.Event()

    def write_masked() -> None:
        while not stop.is_set():
            compiled(x, mask, 1.0)

    thread = threading.Thread(target=write_masked)
    thread.start()
    odd = x[1::2]
    for _ in range(300):
        odd += 1.0
    stop.set()
    thread.join()
    np.testing.assert_array_equal(odd, 300.0)
    assert (x[::2] == x[0]).all() and x[0] >= 1
