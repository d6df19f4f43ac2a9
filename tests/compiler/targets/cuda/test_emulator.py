"""The emulator runs right kernels, and says what a wrong one does: two threads, on pointers p and q to four float32."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiler.cuda_emulator import pointer, run

SHARED = "s = shared_f32_2()\nsstore_f32_1(s, tid_x(), f32(1))\n"
STORE = "store_f32_1x1(q, {}, i32(0), i32(0), {})"
WRONG = {
    STORE.format("i32(0)", "f32(1)"): "written twice",
    STORE.format("i32(4)", "f32(1)"): "outside its buffer",
    STORE.format("tid_x()", "f64(1)"): "float64",
    STORE.format("tid_x()", "f32(1)") + "\nx = load_f32_1x1(q, i32(0), i32(0), i32(0))": r"race on q\[0\]",
    "x = load_f32_1x1(p, i32(-1), i32(0), i32(0))": "outside its buffer",
    "x = load_f32_2x1(p, i32(3), i32(0), i32(1))": "outside its buffer",
    "x = loadv_f32_2x1(p, i32(1), i32(0))": "not aligned to 8",
    f"{SHARED}x = sload_f32_1(s, i32(0))\nbarrier()": "read without a barrier",
    f"{SHARED}sstore_f32_1(s, i32(0), f32(1))\nbarrier()": "overwritten without a barrier",
    f"{SHARED}barrier()\nx = sload_f32_1(s, i32(2))": "has no",
    "if tid_x() == 0:\n    barrier()": "never reach",
    "if tid_x() == 0:\n    ballot(b1(True))\nelse:\n    barrier()": "diverges within a warp",
}


def launched(body: str) -> list[float]:
    lines = "".join(f"    {line}\n" for line in body.split("\n"))
    p, q = np.arange(4, dtype="f4"), np.zeros(4, "f4")
    run(f"def kernel(p, q):\n{lines}", "kernel", (1, 1, 1), (2, 1, 1), [pointer(p, name="p"), pointer(q, name="q")])
    return q.tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("body", WRONG)
def test_a_wrong_kernel_is_told(body: str) -> None:
    with pytest.raises(AssertionError, match=WRONG[body]):
        launched(body)


def test_a_right_kernel_runs() -> None:
    read = f"{SHARED}barrier()\nx = add(sload_f32_1(s, 1 - tid_x()), load_f32_1x1(p, tid_x() + 2, i32(0), i32(0)))\n"
    assert launched(read + STORE.format("tid_x()", "x")) == [3, 4, 0, 0]


def test_what_a_warp_exchanges() -> None:
    store = STORE.format("tid_x()", "f32_from_u32({})")
    assert launched(store.format("ballot(b1(tid_x() == 1))")) == [2, 2, 0, 0]
    assert launched(store.format("match_1(u32(tid_x()))")) == [1, 2, 0, 0]
    assert launched(store.format("shuffle_xor(u32(tid_x() + 5), i32(1))")) == [6, 5, 0, 0]
