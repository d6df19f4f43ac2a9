"""The rule of three: which way of doing a library's product stays, from times alone; what it is kept as."""

from __future__ import annotations

import itertools
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kernelgraph as kg
from kernelgraph.runtime.devices.cuda.driver.driver import SUCCESS
from kernelgraph.runtime.devices.cuda.libraries.cublaslt import CublasLt
from kernelgraph.runtime.devices.cuda.libraries.gemm import GemmCall, cublas_calls_of_matmul_task
from kernelgraph.runtime.devices.cuda.libraries.handles import CublasHandles
from kernelgraph.runtime.devices.cuda.libraries.product_ways import (
    GAIN,
    LEAST_US,
    ONE_BY_ONE,
    SLOW,
    USUAL,
    ProductWay,
    choose_product_way,
    describe_product_ways,
    load_product_way,
    other_product_ways,
    pin_product_way,
)
from kernelgraph.runtime.program.program import Library, Region, Task

CALL = GemmCall("float32", "float32", (10, 256, 1000), (0, 0), (10, 1000, 10), (10000, 256000, 2560), 4, (0, 0, 0))
WAYS = other_product_ways(CALL)
TIMES_OF_WAYS = st.lists(st.one_of(st.none(), st.floats(0.1, 1e6)), min_size=len(WAYS), max_size=len(WAYS))


@given(st.floats(0.1, 1e6), TIMES_OF_WAYS, st.floats(0.1, 1e5))
def test_the_fastest_stays_where_the_usual_way_takes_three_times_as_long(
    usual: float, others: list[float | None], predicted: float
) -> None:
    times = {USUAL: usual, **dict(zip(WAYS, others, strict=True))}
    asked: list[ProductWay] = []

    def measure(way: ProductWay) -> float | None:
        asked.append(way)
        return times[way]

    way, measured = choose_product_way(WAYS, measure, predicted)
    late = usual > SLOW * max(predicted, LEAST_US)
    assert asked == ([USUAL, *WAYS] if late else [USUAL])
    known = {w: t for w, t in times.items() if t is not None}
    assert measured == {str(w): known[w] for w in asked if w in known}
    best = min(known.values())
    assert known[way] == (best if late and best < GAIN * usual else usual)
    note = describe_product_ways(CALL, 1, predicted, way, measured)
    assert bool(note) == late
    if late:
        assert note.startswith(f"matmul: 256x1000 @ 1000x10 in float32, 4 times took {usual:.1f} us")
        assert (str(way) in note) == (way != USUAL)


def test_what_cannot_be_measured_is_done_as_usual() -> None:
    assert choose_product_way(WAYS, lambda way: None, 1.0) == (USUAL, {})
    assert describe_product_ways(CALL, 1, 1.0, USUAL, {}) == ""


@pytest.mark.parametrize("way", [USUAL, *WAYS], ids=str)
def test_a_way_is_kept_on_disk(way: ProductWay, tmp_path: Path) -> None:
    with kg.override(cache_dir=tmp_path):
        key = "a" * 64
        assert load_product_way(key) is None
        times = {str(USUAL): 47.2, str(way): 20.5}
        assert pin_product_way(key, way, times) == load_product_way(key) == (way, times)
        assert pin_product_way(key, ProductWay(7), {}) == (way, times)  # of a process that measured at the same time


@pytest.mark.parametrize("first", [True, False])
def test_one_form_of_product_has_one_way_in_a_process(
    first: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Whichever function comes first, tuned or not, and whatever is predicted of it."""
    tried: list[float] = []

    def measured(self: Any, call: Any, predicted: float, count: int) -> Any:
        tried.append(predicted)
        return ONE_BY_ONE, {str(USUAL): 47.2, str(ONE_BY_ONE): 20.5}

    monkeypatch.setattr(CublasHandles, "_try_product_ways", measured)
    driver: Any = SimpleNamespace()

    def handles() -> CublasHandles:
        return CublasHandles(lambda n: SimpleNamespace(address=0, nbytes=n), 80 << 30, driver, lambda: 0, lambda: "")

    with kg.override(cache_dir=tmp_path):
        blas = handles()
        with kg.override(tune=first):
            kept = blas.way(CALL, 5.0).way
        assert kept == (ONE_BY_ONE if first else USUAL)
        for tune in (True, False):
            with kg.override(tune=tune):
                assert blas.way(CALL, 500.0).way == kept
        if first:  # and in later processes
            with kg.override(tune=False):
                assert handles().way(CALL, 5.0).way == ONE_BY_ONE
    assert tried == [5.0] * first


def test_what_is_known_of_an_algorithm_is_of_one_shape() -> None:
    """Which algorithm a product takes, where its arrays lie at odd places, does not depend on products before it."""
    asked: list[tuple[Any, ...]] = []

    def keeps_nan(call: GemmCall, enqueue: Any) -> bool:
        asked.append(call.shape)
        return True

    relu = replace(CALL, epilogue=("relu",))
    other = replace(relu, shape=(10, 256, 900))
    algorithm = {"algo": np.arange(8)}

    def known(*before: GemmCall) -> bool:
        library = CublasLt(1 << 20, keeps_nan)
        library._lib = SimpleNamespace(cuBLASLtError=RuntimeError)
        for call in before:
            assert library._algorithm_keeps_nan(call, algorithm, True)
        return library._algorithm_keeps_nan(relu, algorithm, False)

    assert not known() and not known(other)
    assert known(replace(relu, offsets=(0, 64, 128)))
    assert len(asked) == 2


def regions_of(a: Any, b: Any, c: Any) -> tuple[Region, Region, Region]:
    first, second, third = (Region(i, 0, v.shape, v.strides, v.itemsize, v.dtype.name) for i, v in enumerate((a, b, c)))
    return first, second, third


def elements(call: GemmCall, which: int) -> set[int]:
    """Byte offsets of all elements of B, A or C."""
    rows, columns = call.stored_shapes[which]
    size, steps = call.itemsizes[which], (call.strides[which], call.leading[which], 1)
    return {
        call.offsets[which] + size * sum(i * s for i, s in zip(index, steps, strict=True))
        for index in itertools.product(range(call.batch), range(columns), range(rows))
    }


@pytest.mark.parametrize("dtypes", [("float32", "float32"), ("float16", "float32"), ("bfloat16", "bfloat16")])
@pytest.mark.parametrize("batches", [((3,), ()), ((), (3,)), ((3,), (3,)), ((2, 3), (1, 3))])
def test_one_by_one_they_are_the_same_products(batches: Any, dtypes: Any) -> None:
    """They read and write the same elements, which lie within the spans."""
    kinds = [np.dtype(kg.bfloat16 if d == "bfloat16" else d) for d in dtypes]
    a = np.zeros((*batches[0], 4, 5), kinds[0])
    b = np.zeros((*batches[1], 6, 5), kinds[0]).swapaxes(-1, -2)
    batch = np.broadcast_shapes(*batches)
    whole = [np.broadcast_to(v, (*batch, *v.shape[-2:])) for v in (a, b)]
    regions = regions_of(whole[0], whole[1], np.zeros((*batch, 4, 6), kinds[1]))
    task = Task("matmul", Library("matmul", ()), (), regions[:2], regions[2:])
    calls = cublas_calls_of_matmul_task(task)
    assert calls
    for call in calls:
        assert call.itemsizes == (kinds[0].itemsize, kinds[0].itemsize, kinds[1].itemsize)
        for which in range(3):
            parts = [elements(one, which) for one in call.one_by_one()]
            assert set().union(*parts) == elements(call, which)
            assert max(elements(call, which)) + call.itemsizes[which] == call.offsets[which] + call.spans[which]


def test_only_what_the_library_has_choices_for_is_tried() -> None:
    assert other_product_ways(GemmCall("complex64", "complex64", *_rest(CALL, 4))) == (ProductWay(one_by_one=True),)
    assert other_product_ways(GemmCall("float64", "float64", *_rest(CALL, 1))) == ()
    assert ProductWay(one_by_one=True) not in other_product_ways(GemmCall("float32", "float32", *_rest(CALL, 1000)))


def _rest(call: GemmCall, batch: int) -> tuple[Any, ...]:
    return call.shape, call.operations, call.leading, call.strides, batch, call.offsets


class ClockedGpu:
    """A driver of one stream whose calls take the host microseconds, as the GPU's work does beside it."""

    def __init__(self, host: float) -> None:
        self._host, self.now, self._free = host, 0.0, 0.0
        self._events, self._graphs = dict[int, float](), dict[int, list[float]]()
        self._captured: list[float] | None = None

    def work(self, microseconds: float) -> int:
        self.now += self._host
        if self._captured is not None:
            self._captured.append(microseconds)
        else:
            self._free = max(self._free, self.now) + microseconds
        return SUCCESS

    def record(self, event: int, stream: int) -> int:
        self.work(0.0)
        self._events[event] = self._free
        return SUCCESS

    def launch_graph(self, executable: int, stream: int) -> int:
        return self.work(sum(self._graphs[executable]))

    def begin_capture(self, stream: int, mode: int) -> int:
        self._captured = []
        return SUCCESS

    def end_capture(self, stream: int) -> tuple[int, int]:
        self._graphs[1], self._captured = self._captured or [], None
        return SUCCESS, 1

    def instantiate(self, graph: int) -> tuple[int, int]:
        return SUCCESS, graph

    def create_event(self, flags: int) -> tuple[int, int]:
        self._events[made := len(self._events)] = 0.0
        return SUCCESS, made

    def elapsed(self, start: int, end: int) -> tuple[int, float]:
        return SUCCESS, self._events[end] - self._events[start]

    def synchronize_stream(self, stream: int) -> int:
        self.now = max(self.now, self._free)
        return SUCCESS

    def fill(self, address: int, byte: int, nbytes: int, stream: int) -> int:
        return self.work(1.0)

    def to_device(self, to: int, source: int, nbytes: int, stream: int) -> int:
        return self.work(1.0)

    def destroy_graph(self, graph: int) -> int:
        return SUCCESS

    destroy_executable = destroy_graph


class ClockedProducts(CublasHandles):
    """With products that take the GPU microseconds, and are all there is."""

    def __init__(self, driver: Any, microseconds: float) -> None:
        super().__init__(lambda nbytes: SimpleNamespace(address=256, nbytes=nbytes), 1 << 36, driver, lambda: 1, str)
        self.driver, self.took, self.asked = driver, microseconds, list[ProductWay]()
        self._lt.has_choice = lambda call, choice: True  # type: ignore[method-assign]

    def handle(self, stream: int) -> int:
        return stream

    def run(self, call: GemmCall, addresses: Any, stream: int, way: ProductWay = USUAL) -> bool:
        self.asked.append(way)
        self.driver.work(self.took if way == USUAL else self.took / 2)
        return True


@pytest.mark.parametrize("host", [0.5, 10.0, 60.0])
@pytest.mark.parametrize("took", [1.0, 8.0, 14.0, 40.0, 5000.0])
@pytest.mark.parametrize("predicted", [0.5, 2.0, 20.0])
def test_what_is_measured_is_the_gpus_time(
    host: float, took: float, predicted: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long the host takes to enqueue a product, only one that is slow itself is done in another way."""
    driver = ClockedGpu(host)
    monkeypatch.setattr(time, "perf_counter", lambda: driver.now * 1e-6)
    with kg.override(cache_dir=tmp_path, tune=True):
        products = ClockedProducts(driver, took)
        chosen = products.way(CALL, predicted)
    late = took > SLOW * max(predicted, LEAST_US)
    assert (chosen.way != USUAL) == bool(chosen.note) == late
    assert (set(products.asked) == {USUAL}) == (not late)
