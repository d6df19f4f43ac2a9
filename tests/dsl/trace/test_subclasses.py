"""Subclasses of NumPy's arrays and of Python's numbers: what they mean is kept, or they are refused."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from tests.dsl.tracing import assert_same


class Quantity(np.ndarray[Any, Any]):
    """Has units."""

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        raise TypeError("metres and kilometres")


class Named(np.ndarray[Any, Any]):
    """Has a name, and nothing else."""

    name = "plain"


class Order(enum.IntEnum):
    TWO = 2


class Whole(int):
    pass


class Real(float):
    pass


class Complex(complex):
    pass


OUTSIDE = np.ones(2).view(Quantity)


def cpu(function: Any) -> Any:
    return kg.kernel_graph(function, device="cpu")


@pytest.mark.usefixtures("refusing")
@pytest.mark.parametrize(
    "array",
    [np.ones(2).view(Quantity), np.ma.masked_array([1.0, 2.0], [True, False]), np.ones((2, 2)).view(np.matrix)],
)
def test_arrays_with_a_meaning_of_their_own_are_refused(array: Any) -> None:
    for f in (lambda p, q: p + q, lambda p, q: np.ones(2)):
        with pytest.raises(TypeError, match="a meaning of its own; write"):
            cpu(f)(array, array)
    with pytest.raises(TypeError, match="a meaning of its own"):
        cpu(lambda x: x + array)(np.ones(2))


def test_operations_of_them_outside_of_a_trace_are_their_own() -> None:
    a = kg.asarray(np.ones(2), device="cpu")
    with pytest.raises(TypeError, match="metres"):
        a + OUTSIDE
    with pytest.raises(TypeError, match="metres"):
        np.add(OUTSIDE, a)
    masked = np.ma.masked_array([1.0, 2.0], [True, False])
    for result in (a + masked, masked + a, np.add(a, masked)):
        assert isinstance(result, np.ma.MaskedArray) and result.mask.tolist() == [True, False]


def test_subclasses_without_ways_of_their_own_are_arrays() -> None:
    named = np.ones(2).view(Named)
    assert_same(cpu(lambda x: x + named)(named), np.full(2, 2.0))


def test_files_in_memory_are_arrays(tmp_path: Path) -> None:
    disk = np.memmap(tmp_path / "x", np.float64, "w+", shape=(3,))
    disk[:] = [1, 2, 3]

    def add(u: Any) -> Any:
        u += 1
        return u * 2

    assert_same(cpu(add)(disk), np.array([4.0, 6.0, 8.0]))
    assert_same(cpu(lambda x: x + disk)(np.ones(3)), np.array([3.0, 4.0, 5.0]))
    assert isinstance(kg.asarray(np.ones(3), device="cpu") + disk, kg.Array)


@pytest.mark.parametrize("dtype", ["i1", "i8", "f4", "f8", "c8"])
@pytest.mark.parametrize("number", [Order.TWO, Whole(2), Whole(300), Real(2.5), Complex(1, 2), True])
def test_subclasses_of_numbers_promote_as_numpy_has_it(dtype: str, number: Any) -> None:
    x = np.array([1, 2, 3], dtype)

    def compute(x: Any) -> Any:
        return x * number, number + x, np.add(x, number), np.where(x == 1, x, number), np.multiply(number, x)

    def compared(x: Any) -> Any:
        return x < number, number == x

    assert_same(cpu(compute)(x), compute(x))
    if not isinstance(number, Complex):
        assert_same(cpu(compared)(x), compared(x))
    assert_same(cpu(lambda x, n: x * n)(x, number), x * number)


def test_python_numbers_of_the_call_meet_subclasses() -> None:
    def compute(x: Any, k: int) -> Any:
        return x * (k * Order.TWO), [x] * (k + Whole(1)), x.reshape(k * Order.TWO, -1), x + Real(0.5) * k

    x = np.arange(4, dtype=np.int8)
    assert_same(cpu(compute)(x, 2), compute(x, 2))
