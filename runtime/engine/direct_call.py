"""A small plan in; a function of its arrays that Python calls as it calls its own built-in ones, out.

The function looks at the arrays itself, in the memory of the objects, and runs the plan in the caller. A self-test says
whether objects lie in memory as it expects; where they do not, there are no such functions, and calls take the ordinary
way.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from functools import cache
from struct import Struct
from typing import Any

import numpy as np

from ..codegen import native_callable
from ..codegen.native_callable import (
    DATA_AT,
    DTYPE_AT,
    NDIM_AT,
    SHAPE_AT,
    STRIDES_AT,
    TYPE_AT,
    make_builtin_from_machine_code,
    read_memory_word,
)
from ..core.frozen import dataclass
from ..core.host_pool import HostPool
from ..interpret.serial import scalar_argument_bits
from .encode_plan import PlanLayout
from .engine import EngineFunctions, native_engine_functions
from .words import records as e

ARENA = -1

_FORMATS = {
    "bool": "?7x", "int8": "b7x", "int16": "h6x", "int32": "i4x", "int64": "q", "uint8": "B7x", "uint16": "H6x",
    "uint32": "I4x", "uint64": "Q", "float16": "e6x", "float32": "f4x", "float64": "d",
}  # fmt: skip

Direct = Callable[..., bool]
Words = Sequence[tuple[int, int]]


def call_table_packers(heads: int, scalars: Sequence[str]) -> tuple[Callable[..., bytes], Callable[..., bytes]]:
    """Two functions from addresses and scalars to a call's table: one fast and choosy, one that takes any number."""
    words = Struct(f"={heads + len(scalars)}Q").pack

    def convert_and_pack_call_table(*values: Any) -> bytes:
        bits = (scalar_argument_bits(v, s) for v, s in zip(values[heads:], scalars, strict=True))
        return words(*values[:heads], *bits)

    if all(s in _FORMATS for s in scalars):
        return Struct("=" + "Q" * heads + "".join(_FORMATS[s] for s in scalars)).pack, convert_and_pack_call_table
    return convert_and_pack_call_table, convert_and_pack_call_table


@dataclass(frozen=True, slots=True)
class DirectArgument:
    """An argument: which buffer it is (or `ARENA`), and an array that it has to be like (None: a block of memory).

    low: bytes from the first element to the lowest one; 0 or negative."""

    buffer: int
    like: np.ndarray[Any, Any] | None = None
    low: int = 0


def make_direct_call(
    layout: PlanLayout,
    taken: Sequence[DirectArgument],
    keep: Any = None,
    watched: Words = (),
    scalars: Sequence[str] = (),
) -> Direct | None:
    """f(*arguments): if each is like the one in `taken`, the plan runs here and now, and the answer is True; else it is
    False. None where objects are not as expected. keep: what has to live as long. watched: words of memory, and what
    has to be there too. scalars: the dtypes of those of the plan; they come last, in one argument of
    `call_table_packers`."""
    found = native_engine_functions()
    return (
        _build_direct_call_function(found, layout, taken, keep, watched, scalars)
        if found is not None and direct_call_self_test()
        else None
    )


@cache
def direct_call_self_test() -> bool:
    """The self-test: whether objects lie in memory as `words.records` says."""
    found = native_engine_functions()
    if (
        found is None
        or not native_callable.machine_code_can_read_bytes_objects()
        or not _pool_block_layout_as_expected()
    ):
        return False
    base = np.arange(24, dtype=np.float32)
    samples: list[np.ndarray[Any, Any]]
    samples = [base, base.reshape(4, 6)[1:, ::-2], np.zeros(()), np.zeros((0, 3), np.int8), base[1:]]
    return all(_numpy_array_layout_as_expected(s) for s in samples) and _direct_call_tells_samples_apart(found, samples)


def _pool_block_layout_as_expected() -> bool:
    block = HostPool().allocate(64)
    return read_memory_word(id(block) + DATA_AT) == int(block.address)


def _numpy_array_layout_as_expected(array: np.ndarray[Any, Any]) -> bool:
    at, n = id(array), array.ndim
    if read_memory_word(at + TYPE_AT) != id(np.ndarray) or read_memory_word(at + NDIM_AT) & e.LOW_HALF != n:
        return False
    shape = tuple((ctypes.c_int64 * n).from_address(read_memory_word(at + SHAPE_AT))) if n else ()
    strides = tuple((ctypes.c_int64 * n).from_address(read_memory_word(at + STRIDES_AT))) if n else ()
    same = read_memory_word(at + DATA_AT) == array.ctypes.data and read_memory_word(at + DTYPE_AT) == id(array.dtype)
    return same and shape == array.shape and strides == array.strides


def _direct_call_tells_samples_apart(found: EngineFunctions, samples: Sequence[np.ndarray[Any, Any]]) -> bool:
    """Whether functions of a plan that does nothing know their samples from each other."""
    plan = (ctypes.c_uint64 * 8)()
    layout = PlanLayout(ctypes.addressof(plan), (), 0, (), (), {}, {}, (), False, 0, (), {}, (plan,))
    for sample in samples:
        try:
            function = _build_direct_call_function(found, layout, [DirectArgument(0, sample)], None)
        except (AttributeError, ctypes.ArgumentError):
            return False
        answers = [function(s) for s in samples] + [function(None), function(), function(sample, sample)]
        if answers != [s is sample for s in samples] + [False, False, False]:
            return False
    return True


def _build_direct_call_function(
    found: EngineFunctions,
    layout: PlanLayout,
    taken: Sequence[DirectArgument],
    keep: Any,
    watched: Words = (),
    scalars: Sequence[str] = (),
) -> Direct:
    columns = (*layout.order, ARENA) if layout.uses_arena else layout.order
    place = {buffer: 8 * i for i, buffer in enumerate(columns)}
    packed = 8 * len(place)
    spare = packed + 8 * len(scalars)  # for what no kernel reads
    immortal = sys.version_info >= (3, 12)
    answers = [id(True), id(False), 0 if immortal else 1]
    head = [layout.plan, spare + 8, len(taken) + bool(scalars), id(np.ndarray), *answers, len(watched)]
    head += [word for pair in watched for word in pair]
    rows = [word for t in taken for word in _direct_call_argument_row(t, place.get(t.buffer, spare))]
    rows += [e.PACKED, id(bytes), 8 * len(scalars), packed, 0] if scalars else []
    held = (layout, [t.like.dtype for t in taken if t.like is not None], keep)
    return make_builtin_from_machine_code(found.direct, head + rows, held)


def _direct_call_argument_row(taken: DirectArgument, place: int) -> list[int]:
    array = taken.like
    if array is None:
        return [0, 0, 0, place, 0]
    sizes = [word for pair in zip(array.shape, array.strides, strict=True) for word in pair]
    return [id(array.dtype), array.ctypes.data & 15, taken.low, place, array.ndim, *sizes]
