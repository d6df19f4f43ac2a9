"""Philox4x32-10: the row's expansion and its reference, against published answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kernelgraph.compiler.core.types import DTYPES, SHORT_NAMES
from kernelgraph.compiler.graph.builder import GraphBuilder
from kernelgraph.compiler.kernel.body_builder import KernelBody
from kernelgraph.compiler.ops.table import OPS, resolve_op_row_dtypes
from tests.compiler.op_cases import run

U32, U64 = DTYPES["u32"], DTYPES["u64"]

# Counter, key and answer, from the file kat_vectors of Random123 1.14 (D. E. Shaw Research).
KNOWN = """
00000000 00000000 00000000 00000000 00000000 00000000 6627e8d5 e169c58d bc57ac4c 9b00dbd8
ffffffff ffffffff ffffffff ffffffff ffffffff ffffffff 408f276d 41c83b0e a20bc7c6 6d5451fd
243f6a88 85a308d3 13198a2e 03707344 a4093822 299f31d0 d16cfe09 94fdcceb 5001e420 24126ea1
"""
VECTORS = np.array([[int(word, 16) for word in line.split()] for line in KNOWN.split("\n") if line], U32)


@pytest.mark.parametrize("word", range(4))
def test_known_answers(word: int) -> None:
    arguments, want = [np.ascontiguousarray(c) for c in VECTORS[:, :6].T], VECTORS[:, 6 + word]
    np.testing.assert_array_equal(run(OPS["philox"], arguments, U32, {"word": word}), want)
    reference: Any = OPS["philox"].numpy
    np.testing.assert_array_equal(reference(*arguments, word=word), want)


def test_multiply_high_is_the_upper_half() -> None:
    rng = np.random.default_rng(0)
    for dtype in (U32, U64):
        bits = 8 * dtype.itemsize
        a, b = (rng.integers(0, 2**bits - 1, 500, dtype, endpoint=True) for _ in range(2))
        want = [int(x) * int(y) >> bits for x, y in zip(a, b, strict=True)]
        reference: Any = OPS["multiply_high"].numpy
        np.testing.assert_array_equal(reference(a, b), np.array(want, dtype))


@pytest.mark.parametrize("dtype", [d for d in SHORT_NAMES if d != U32], ids=str)
def test_words_are_not_promoted(dtype: Any) -> None:
    with pytest.raises(TypeError, match="philox"):
        resolve_op_row_dtypes("philox", [dtype] + [U32] * 5)


def test_the_words_of_a_block_share_their_rounds() -> None:
    """Four words cost little more than one: a kernel's body holds each round once."""

    def length(words: int) -> int:
        body = KernelBody()
        body.begin_phase("point")
        arguments = [body.load(i, U32) for i in range(6)]
        for word in range(words):
            body.store(6 + word, body.apply(OPS["philox"], arguments, U32, {"word": word}))
        body.end_phase()
        return sum(len(phase.instrs) for phase in body.finish())

    assert length(4) < 1.25 * length(1)


def test_constants_are_typed() -> None:
    b = GraphBuilder()
    index = b.cast(b.index((5,), 0), U32)
    zero = b.const(0, U32)
    assert b.map("philox", index, zero, zero, zero, zero, zero, word=3).dtype == U32
