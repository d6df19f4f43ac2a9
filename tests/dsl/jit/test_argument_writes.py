"""A write to an argument costs what it writes and touches nothing else: NumPy arrays and kg.Arrays, compiled, eager."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.dsl.array.devices import open_device
from kernelgraph.dsl.array.mutation import write_differing_elements
from tests import argument_writes
from tests.counts import examples
from tests.dsl.world_objects import cpu

THREADS = 8
TABLE = [*argument_writes.table()]


@pytest.mark.parametrize("part", range(4))
def test_what_is_assigned_is_written_and_nothing_else(part: int) -> None:
    wrong = [(str(case), found) for case in TABLE[part::4] if (found := argument_writes.wrong(case, 2))]
    assert not wrong


def test_random_functions_that_assign() -> None:
    assert not argument_writes.explore(examples(200), 0)


def rounds_of_rows(make: Callable[[], Any], put: Callable[[Any, int, float], None], rounds: int) -> int:
    """How many rows were lost in rounds in which each thread assigns to a row of its own."""
    lost, start, end = 0, threading.Barrier(THREADS + 1), threading.Barrier(THREADS + 1)
    x: Any = None

    def work(i: int) -> None:
        for turn in range(rounds):
            start.wait()
            for k in range(2):
                put(x, i, float(turn + k + i))
            end.wait()

    threads = [threading.Thread(target=work, args=(i,), daemon=True) for i in range(THREADS)]
    for thread in threads:
        thread.start()
    for turn in range(rounds):
        x = make()
        start.wait()
        end.wait()
        lost += int((np.asarray(x) != (np.arange(THREADS) + turn + 1.0)[:, None]).any(axis=1).sum())
    for thread in threads:
        thread.join()
    return lost


def put_row(x: Any, row: Any, value: Any) -> None:
    x[row : row + 1] = value


def add_to_row(x: Any, row: Any, value: Any) -> None:
    x[row] = x[row] * 0 + value


def put_masked(x: Any, row: Any, value: Any) -> None:
    x[np.arange(THREADS) == row] = value


def put_index(x: Any, row: Any, value: Any) -> None:
    x[np.array([row])] = value


def put_decided(x: Any, row: Any, value: Any) -> None:
    if x[row, 0] > -1:
        x[row] = value


def put_in_turn(x: Any, row: Any, value: Any) -> None:
    for i in range(x.shape[1]):
        x[row, i] = value


def put_by_function(x: Any, row: Any, value: Any) -> None:
    np.put(x, np.arange(64) + 64 * row, value)


WAYS: dict[str, Any] = {
    "row": put_row,
    "changed": add_to_row,
    "mask": put_masked,
    "index": put_index,
    "decided": put_decided,
    "in turn": put_in_turn,
    "function": put_by_function,
}


@pytest.fixture(autouse=True)
def _threads_change_at_any_point() -> Iterator[None]:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.parametrize("own", [False, True], ids=["NumPy", "kg"])
@pytest.mark.parametrize("way", WAYS)
def test_rows_of_eight_threads(way: str, own: bool) -> None:
    rows = [cpu(lambda x, value, row=row: WAYS[way](x, row, value)) for row in range(THREADS)]
    make = (lambda: kg.asarray(np.zeros((THREADS, 64)), device="cpu")) if own else lambda: np.zeros((THREADS, 64))
    assert rounds_of_rows(make, lambda x, row, value: rows[row](x, value), examples(40)) == 0


def test_rows_of_eight_threads_eagerly() -> None:
    ways: list[Any] = [put_row, put_index]
    for way in ways:
        lost = rounds_of_rows(lambda: kg.asarray(np.zeros((THREADS, 64)), device="cpu"), way, examples(100))
        assert lost == 0


def test_a_call_copies_no_more_than_it_writes() -> None:
    """Each result of the plan is as large as what is assigned."""

    def assigns(x: Any, v: Any, i: Any) -> Any:
        x[0, 0] = v
        x[2] = x[1] + 1
        x[3, 1:3] *= 2
        x[i] = v
        return x[0, 0]

    x = np.zeros((1000, 1000))
    program = cpu(assigns).program(x, 3.0, np.array([5, 7]))
    assert sum(program.buffers[o].nbytes for o in program.outputs) < 3 * x[0].nbytes


def test_a_kg_array_is_written_in_place_where_nobody_else_has_its_memory() -> None:
    def assigns(x: Any) -> None:
        x[1] = 5

    f, x = cpu(assigns), kg.asarray(np.zeros((4, 3)), device="cpu")
    for _ in range(3):
        memory = x._memory.address
        f(x)
        assert x._memory.address == memory
        x[2, 0] = 4
        assert x._memory.address == memory
    before = np.asarray(x)
    x[1] = 7
    f(x)
    assert before[1].tolist() == [5, 5, 5] and before[2, 0] == 4


def test_what_comes_before_an_index_out_of_range_is_written() -> None:
    def assigns(x: Any, i: Any, y: Any) -> None:
        x[0] = 7
        y[1] = 3
        x[i] = 2

    f = cpu(assigns)
    for _ in range(3):
        x, y = np.zeros(5), np.zeros(3)
        with pytest.raises(IndexError, match="index 9 is out of bounds for axis 0 with size 5") as caught:
            f(x, np.array([1, 9]), y)
        assert "at test_argument_writes.py" in caught.value.__notes__[0]
        assert x.tolist() == [7, 0, 0, 0, 0] and y.tolist() == [0, 3, 0]
        f(x, np.array([1, 4]), y)
        assert x.tolist() == [7, 2, 0, 0, 2] and y.tolist() == [0, 3, 0]


def test_an_array_in_numpy_gets_only_the_part_from_a_gpu() -> None:
    def assigns(x: Any) -> None:
        x[1] = x[0] + 1

    program = kg.kernel_graph(assigns, device="cuda").program(kg.spec((1000, 10), "f8"))
    assert [program.buffers[o].nbytes for o in program.outputs] == [80]


def test_an_array_that_is_only_assigned_to_is_not_copied_to_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[int] = []
    device = open_device(("fake", 0))
    upload = type(device).upload

    def counted(self: Any, host: Any, memory: Any) -> Any:
        copied.append(host.nbytes)
        return upload(self, host, memory)

    def assigns(x: Any, v: Any) -> None:
        x[1:3] = v

    monkeypatch.setattr(type(device), "upload", counted)
    f = kg.kernel_graph(assigns, device="fake")
    for _ in range(3):
        f(np.zeros((1000, 4)), np.ones(4))
    assert copied == [32, 32, 32]


@pytest.mark.parametrize("shape", [(), (0, 3), (5,), (300, 200), (3, 70, 1000), (1, 100_000), (100_000, 1)])
@pytest.mark.parametrize("dtype", ["?", "i2", "f4", "f8", ">f8", "c8", "c16"])
def test_what_differs_is_found_bit_by_bit(shape: tuple[int, ...], dtype: str) -> None:
    random = np.random.default_rng(0)
    before = random.integers(0, 2, shape).astype(np.dtype(dtype).newbyteorder("="))
    new, target = before.copy(), np.asfortranarray(before.astype(dtype) * 0 + 1)
    chosen = random.random(shape) < 0.1
    new[chosen] = -new[chosen] if dtype != "?" else ~new[chosen]  # of zeros the sign alone
    expected = target.copy()
    bits = np.array([a.tobytes() != b.tobytes() for a, b in zip(new.flat, before.flat, strict=True)], bool)
    np.copyto(expected, new, where=bits.reshape(shape))
    write_differing_elements(target, new, before)
    assert target.tobytes() == expected.tobytes()


@pytest.mark.parametrize("ones", [0, 1, 2])
def test_writes_side_by_side_of_values_with_leading_axes(ones: int) -> None:
    def parts(y: Any, v: Any) -> Any:
        more = v.reshape((1,) * ones + v.shape)
        y[:1] = more[..., :1] * 2
        y[1:3] = more[..., 1:3] + 1
        return y.sum()

    v, ours, wanted = np.arange(5.0), np.zeros(5), np.zeros(5)
    assert float(kg.kernel_graph(parts)(ours, v)) == parts(wanted, v)
    np.testing.assert_array_equal(ours, wanted)
