"""Functions that Python calls as its own: they know their arguments, and run the plan as `run` does."""

from __future__ import annotations

import gc
import sys
import weakref
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgraph.runtime.core.host_pool import inline_block_class, numpy_view_of_pool_block
from kernelgraph.runtime.devices.cpu.device import CPUDevice
from kernelgraph.runtime.engine.direct_call import (
    ARENA,
    DirectArgument,
    direct_call_self_test,
    direct_call_table_packers,
)
from kernelgraph.runtime.engine.engine import native_engine_functions
from kernelgraph.runtime.engine.native_call import native_maker_of_objects, native_test_of_item_types
from kernelgraph.runtime.program.plan import Plan
from kernelgraph.runtime.program.program import Buffer, Program
from tests.runtime.cpu_plans import ADD, DOUBLE, SCALE, in_order, kernel_task

pytestmark = pytest.mark.skipif(native_engine_functions() is None, reason="the engine cannot be built here")

DEVICE = CPUDevice()
NOTHING = Plan(Program((Buffer(8, "input"), Buffer(8, "input")), (), (0, 1), ()), (), 1, 0, (None, None), 0)


class Subclass(np.ndarray[Any, Any]):
    """Its meaning may be another one."""


@st.composite
def views(draw: st.DrawFn) -> np.ndarray[Any, Any]:
    """Small arrays of any layout."""
    shape = draw(st.lists(st.integers(0, 3), max_size=2))
    base = np.zeros([2 * n + 1 for n in shape], draw(st.sampled_from(["float32", "int32", "float64"])))
    for axis, n in enumerate(shape):
        step = draw(st.sampled_from([1, 2, -1, -2]))
        base = base[(slice(None),) * axis + (slice(None, None, step),)]
        base = base[(slice(None),) * axis + (slice(0, n),)]
    return np.asarray(base).transpose(draw(st.permutations(range(len(shape)))))


def alike(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    def facts(x: np.ndarray[Any, Any]) -> Any:
        return x.dtype, x.shape, x.strides, x.ctypes.data & 15

    return bool(facts(a) == facts(b))


@pytest.mark.skipif(sys.implementation.name != "cpython", reason="objects of CPython")
def test_objects_lie_as_expected() -> None:
    assert direct_call_self_test()


@given(views(), views())
def test_only_what_is_alike_fits(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> None:
    function = DEVICE.prepare(NOTHING).direct([DirectArgument(0, a), DirectArgument(1, b)])
    assert function is not None
    assert function(a, b) is True
    assert function(b, a) is alike(a, b)
    for wrong in ((), (a,), (a, b, b), (a, None), (1.0, b), (a.view(Subclass), b), (a, b.tolist())):
        assert function(*wrong) is False


@given(st.integers(1, 40), st.booleans(), st.booleans())
def test_it_does_what_run_does(n: int, reverse: bool, on_stack: bool) -> None:
    step = -1 if reverse else 1
    x, y = np.arange(n, dtype=np.float32)[::step], np.ones(n, np.float32)[::step]
    kinds = ["input", "input", "temp", "output"]
    tasks = [kernel_task(ADD, (0, 1), 2, n), kernel_task(DOUBLE, (2,), 3, n)]
    plan = in_order([Buffer(4 * n, kind) for kind in kinds], tasks, (0, 1), (3,))
    low = min(0, 4 * step * (n - 1))
    taken = [DirectArgument(0, x, low), DirectArgument(1, y, low), DirectArgument(3), DirectArgument(ARENA)]
    function = DEVICE.prepare(plan).direct(taken[:-1] if on_stack else taken)
    assert function is not None
    out = DEVICE.allocate(4 * n)
    arena = [] if on_stack else [DEVICE.allocate(max(1, plan.arena_bytes))]
    before = numpy_view_of_pool_block(out, np.float32, (n,))
    before[...] = -1
    assert function(x, y.astype(np.float64), out, *arena) is False
    assert (before == -1).all()
    assert function(x, y, out, *arena) is True
    np.testing.assert_array_equal(before, (2 * (x + y))[::step])  # the kernels read from the lowest address on


@given(st.floats(width=32), st.floats(width=32))
def test_numpy_scalars_are_read_where_they_lie(a: float, b: float) -> None:
    x, y = np.float32(a), np.float32(b)
    buffers = [Buffer(4, kind) for kind in ("input", "input", "output")]
    plan = in_order(buffers, [kernel_task(ADD, (0, 1), 2, 1)], (0, 1), (2,))
    function = DEVICE.prepare(plan).direct([DirectArgument(0, x), DirectArgument(1, y), DirectArgument(2)])
    assert function is not None
    out = DEVICE.allocate(4)
    found = numpy_view_of_pool_block(out, np.float32, (1,))
    found[...] = -1
    for wrong in (np.float64(a), np.int32(1), np.asarray(x), a, 1, None, type("Own", (np.float32,), {})(a)):
        assert function(wrong, y, out) is False
        assert function(x, wrong, out) is False
    assert found[0] == -1
    assert function(y, x, out) is True
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(found[0], y + x)


SLICES = st.builds(slice, st.integers(0, 39), st.integers(0, 40), st.sampled_from([-3, -1, 1, 2]))


@given(SLICES, SLICES, st.booleans(), st.booleans())
def test_what_is_assigned_to_is_writeable_and_apart(first: slice, second: slice, both: bool, fixed: bool) -> None:
    base = np.zeros(40)
    a, b = base[first], base[second]
    if fixed:
        a.flags.writeable = False
    function = DEVICE.prepare(NOTHING).direct(
        [
            DirectArgument(0, x, min(0, x.strides[0]) * max(0, len(x) - 1), assigned)
            for x, assigned in ((a, True), (b, both))
        ]
    )
    assert function is not None
    assert function(a, b) is not (fixed or np.may_share_memory(a, b))


def test_answers_count_their_references() -> None:
    x = np.zeros(3)
    function = DEVICE.prepare(NOTHING).direct([DirectArgument(0, x), DirectArgument(1, x)])
    assert function is not None
    before = sys.getrefcount(True), sys.getrefcount(False)
    kept = [function(x, x) for _ in range(1000)] + [function(x) for _ in range(1000)]
    after = sys.getrefcount(True), sys.getrefcount(False)
    del kept
    if sys.version_info < (3, 12):
        assert all(990 <= b - a <= 1010 for a, b in zip(before, after, strict=True))
    assert abs(sys.getrefcount(True) - before[0]) < 10


def test_a_word_that_has_changed_stops_it() -> None:
    x, words = np.zeros(3), np.arange(4, dtype=np.uint64)
    watched = [(words.ctypes.data + 8 * i, i) for i in (1, 3)]
    function = DEVICE.prepare(NOTHING).direct([DirectArgument(0, x)], watched)
    assert function is not None
    for i, stops in ((0, False), (1, True), (2, False), (3, True)):
        assert function(x) is True
        words[i] += 1 << 40
        assert function(x) is not stops
        words[i] -= 1 << 40


@given(st.integers(1, 40), st.floats(-1e3, 1e3, width=32))
def test_scalars_come_packed(n: int, factor: float) -> None:
    x, out = np.arange(n, dtype=np.float32), DEVICE.allocate(4 * n)
    task = kernel_task(SCALE, (0,), 1, n, scalars=(0,))
    plan = in_order([Buffer(4 * n, kind) for kind in ("input", "output")], [task], (0,), (1,), ("float32",))
    function = DEVICE.prepare(plan).direct([DirectArgument(0, x), DirectArgument(1)])
    assert function is not None
    pack, convert = direct_call_table_packers(0, ("float32",))
    assert pack(factor) == convert(factor)
    found = numpy_view_of_pool_block(out, np.float32, (n,))
    found[...] = -1
    for wrong in ((), (None,), (factor,), (b"",), (bytes(16),), (bytearray(8),)):
        assert function(x, out, *wrong) is False
    assert (found == -1).all()
    assert function(x, out, pack(factor)) is True
    np.testing.assert_array_equal(found, x * np.float32(factor))


class Slots:
    __slots__ = ("__weakref__", "first", "never", "second", "third")

    def __init__(self) -> None:
        raise AssertionError


def test_objects_of_slots_are_made_natively() -> None:
    shared: list[Any] = []
    make = native_maker_of_objects(Slots, ("second",), {"third": shared, "first": None})
    both = native_maker_of_objects(Slots, ("third", "first"), {"second": None})
    assert make is not None and both is not None
    pair = both(shared, 1)
    assert (pair.first, pair.second, pair.third) == (1, None, shared)
    del pair
    gc.collect()  # classes that looked for the places
    value = object()
    counts = [sys.getrefcount(x) for x in (value, shared, Slots)]
    made = [make(value) for _ in range(100)]
    assert all(type(x) is Slots and (x.first, x.second, x.third) == (None, value, shared) for x in made)
    assert not hasattr(made[0], "never")
    weak = weakref.ref(made[0])
    made[0].first = made[0]
    shared.append(made[0])
    made.clear()
    assert weak() is shared[0]
    shared.clear()
    gc.collect()
    assert weak() is None and [sys.getrefcount(x) for x in (value, shared, Slots)] == counts
    assert native_maker_of_objects(Slots, ("missing",), {}) is None
    with pytest.raises(SystemError):
        make()  # type: ignore[call-arg]


@pytest.mark.parametrize("nbytes", [1, 2, 8, 16])
def test_blocks_of_few_bytes_lie_in_their_objects(nbytes: int) -> None:
    make = inline_block_class(nbytes)
    assert make is not None
    blocks = [make() for _ in range(64)]
    for n, block in enumerate(blocks):
        assert block.nbytes == nbytes and block.address % 16 == 0
        numpy_view_of_pool_block(block, np.dtype("u1"), (nbytes,))[...] = n
    assert [bytes(block) for block in blocks] == [bytes([n]) * nbytes for n in range(64)]
    assert inline_block_class(17) is None


class Number(float):
    """None of Python's own."""


@given(
    st.lists(st.sampled_from([1, 2.5, True, "text", None, 1j, Number(1), np.float64(2), [], np.zeros(1)]), max_size=9)
)
def test_the_types_of_a_lists_items_are_told(items: list[Any]) -> None:
    kinds = [int, float, bool, type(None)]
    test = native_test_of_item_types(kinds)
    assert test is not None
    gc.disable()  # what others have left holds these types too
    try:
        counts = [sys.getrefcount(x) for x in (items, *kinds)]
        for _ in range(20):
            assert test(items) is {*kinds}.issuperset(map(type, items))
            assert test(tuple(items)) is test("text") is test(None) is False
        assert [sys.getrefcount(x) for x in (items, *kinds)] == counts
    finally:
        gc.enable()
    with pytest.raises(SystemError):
        test()  # type: ignore[call-arg]
