"""Arrays of one element, of several and of none where Python or an element wants one number: as NumPy takes them."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from tests.scalars import caught_by, compared

VALUES = {"?": True, "i8": 3, "f4": 2.75, "f8": 2.5, "c16": 1 + 2j}
SHAPES = ((), (1,), (1, 1), (2,), (0,))


def first(z: Any, v: Any) -> Any:
    z[0] = v
    return z


def keyed(z: Any, v: Any) -> Any:
    z[(1,)] = v
    return z


def filled(z: Any, v: Any) -> Any:
    z.fill(v)
    return z


def flat(z: Any, v: Any) -> Any:
    z.flat[0] = v
    return z


def listed(z: Any, v: Any) -> Any:
    z[0] = [1] * v.size
    return z


def as_int(z: Any, v: Any) -> Any:
    return int(v)


def as_float(z: Any, v: Any) -> Any:
    return float(v) + z


def as_complex(z: Any, v: Any) -> Any:
    return complex(v) + z


def as_bool(z: Any, v: Any) -> Any:
    return 1 if v else 2


def root(z: Any, v: Any) -> Any:
    return math.sqrt(v)


def of_range(z: Any, v: Any) -> Any:
    total = z
    for i in range(v):
        total = total + i
    return total


def of_list(z: Any, v: Any) -> Any:
    return [1, 2, 3, 4, 5][v] + z


def of_array(z: Any, v: Any) -> Any:
    return np.arange(5.0)[v]


def in_loop(z: Any, v: Any) -> Any:
    total = z
    for i in range(40):
        total = total * 0.5 + int(v[i % 1 : i % 1 + 1])
    return total


USES = [first, keyed, filled, flat, listed, as_int, as_float, as_complex, as_bool, root, of_range, of_list, of_array]


def result(function: Any, *args: Any) -> Any:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            return function(*(a.copy() for a in args))
        except Exception as error:
            return error


@pytest.mark.parametrize("use", [*USES, in_loop])
@pytest.mark.parametrize("shape", SHAPES)
def test_is_the_number_that_numpy_takes_it_for(use: Any, shape: tuple[int, ...]) -> None:
    for kind, value in VALUES.items():
        v = np.full(shape, value, kind)
        for dtype in VALUES if use in USES[:5] else ("f8",):
            z = np.zeros(3, dtype)
            wanted, found = result(use, z, v), result(kg.kernel_graph(use, device="cpu"), z, v)
            if isinstance(wanted, Exception):
                assert isinstance(found, caught_by(wanted)), (kind, dtype, wanted, found)
            else:
                assert compared(wanted, found, False) == ("right", ""), (kind, dtype, wanted, found)


CASTS = [
    lambda x: np.float16(x),
    lambda x: np.float32(x),
    lambda x: np.float64(x) + x,
    lambda x: np.int32(x),
    lambda x: np.uint8(x),
    lambda x: np.int64(x) * x,
    lambda x: np.bool_(x),
    lambda x: np.complex64(x) - x,
]
GIVEN: list[Any] = [
    np.array([1.5, 2.0, 300.0]), np.array(2.5), np.array([[3]]), np.array([1 + 2j, 3]), np.array([], float),
    np.array([True, False]), np.float64(7.5), np.int64(300), 3, 2.5, 1j,
]  # fmt: skip


@pytest.mark.parametrize("cast", CASTS)
def test_types_of_scalars_cast_what_is_traced(cast: Any) -> None:
    for x in GIVEN:
        compiled = kg.kernel_graph(cast, device="cpu")
        wanted, found = result(cast, np.copy(x)[()]), result(compiled, np.copy(x)[()])
        if isinstance(wanted, Exception):
            assert isinstance(found, caught_by(wanted)), (x, wanted, found)
        else:
            assert compared(wanted, found, False) == ("right", ""), (x, wanted, found)
            assert not np.ndim(x) or "runs in NumPy" not in compiled.why()
