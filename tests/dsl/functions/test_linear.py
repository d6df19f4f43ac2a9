"""Products of matrices: small ones and those of vectors are sums in kernels, others a library's; all mean NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kernelgraph as kg
from kernelgraph.dsl.functions.products import SMALL, SMALL_BY_VECTOR
from kernelgraph.runtime.program.program import Kernel, Library
from tests.dsl.agreement import arrays

DTYPES = ("f4", "f8", "c8", "c16", "i4", "i8", "u4")


def error(found: Any, exact: Any) -> float:
    return float(np.linalg.norm(np.asarray(found).astype(exact.dtype) - exact))


@pytest.mark.parametrize("dtype", DTYPES)
@settings(max_examples=4, deadline=None)
@given(st.data())
def test_small_products_are_as_near_as_numpys(dtype: str, data: Any) -> None:
    """Within the larger of 4 ulp and twice NumPy's own error against longdouble, by norm; integers exact."""
    m, k, n = (data.draw(st.integers(1, 12)) for _ in range(3))
    batch = data.draw(st.sampled_from([(), (2,), (3, 1)]))
    a = data.draw(arrays((dtype,), shape=(*batch, m, k)))
    b = data.draw(arrays((dtype,), shape=(*batch[-1:], k, n)))
    found = kg.kernel_graph(lambda a, b: a @ b, device="cpu")(a, b)
    expected = a @ b
    assert found.dtype == expected.dtype and found.shape == expected.shape
    if expected.dtype.kind in "iu":
        np.testing.assert_array_equal(found, expected)
        return
    exact = a.astype(np.clongdouble) @ b.astype(np.clongdouble)
    ulp = 4 * float(np.finfo(expected.dtype).eps) * float(np.linalg.norm(exact))
    assert error(found, exact) <= max(ulp, 2 * error(expected, exact))


@pytest.mark.parametrize("dtype", ["f4", "f8", "c8"])
@pytest.mark.parametrize("k", [1, 100, 5000])
def test_products_with_vectors_are_as_near_as_numpys(dtype: str, k: int) -> None:
    rng = np.random.default_rng(k)
    a, x = rng.normal(size=(9, k)).astype(dtype), rng.normal(size=k).astype(dtype)
    calls = (lambda a, x: a @ x, lambda a, x: x @ a.T, lambda a, x: x @ x, lambda a, x: x[None] @ a.T)
    for call in calls:
        expected = call(a, x)
        found = kg.kernel_graph(call, device="cpu")(a, x)
        exact = call(a.astype(np.clongdouble), x.astype(np.clongdouble))
        ulp = 4 * float(np.finfo(expected.dtype).eps) * float(np.linalg.norm(exact))
        assert found.shape == expected.shape and error(found, exact) <= max(ulp, 2 * error(expected, exact))


def kinds(call: Any, *shapes: tuple[int, ...], dtype: str = "f8", device: str = "fake") -> list[type]:
    decorated = kg.kernel_graph(call, device=device)
    return [type(t.kernel) for t in decorated.program(*(kg.spec(s, dtype) for s in shapes)).tasks]


def test_which_products_are_a_librarys() -> None:
    side = round(SMALL ** (1 / 3))
    long = round(SMALL_BY_VECTOR**0.5)

    def product(a: Any, b: Any) -> Any:
        return a @ b

    assert kinds(product, (side, side), (side, side)) == [Kernel]
    assert kinds(product, (side + 1, side), (side, side)) == [Library]
    assert kinds(product, (side, side), (50, side, side)) == [Library]
    assert kinds(product, (long, long), (long,)) == [Kernel]
    assert kinds(product, (long + 1, long), (long,)) == [Library]
    assert kinds(product, (long + 1, long), (long,), device="cpu") == [Kernel]
    assert kinds(product, (long + 1, long), (long,), dtype="i8", device="cpu") == [Library]
    assert Library not in kinds(product, (10**7,), (10**7,))
    assert kinds(product, (100, 200, 1), (1, 300)) == [Kernel]  # nothing is summed
    assert kinds(product, (4, 4), (4, 4), dtype="f2") == [Library]  # NumPy sums these in float32
    assert kinds(product, (4, 4), (4, 4), dtype="?") == [Library]


def test_a_matrix_in_memory_times_a_vector_is_a_matmul() -> None:
    """Whatever computes the matrix fuses with the sum; of one that is read as it is there is nothing to fuse."""

    def names(call: Any, *shapes: tuple[int, ...], dtype: str = "f8") -> list[str]:
        program = kg.kernel_graph(call, device="cpu").program(*(kg.spec(s, dtype) for s in shapes))
        return [t.name for t in program.tasks]

    for call in (lambda a, x: a @ x, lambda a, x: x @ a, lambda a, x: a.T @ x, lambda a, x: a[::-1].T @ x):
        assert names(call, (100, 100), (100,)) == ["matmul"]
    assert names(lambda a, x: np.tanh(a[1:, :50] @ x), (100, 100), (50,)) == ["matmul", "tanh"]
    for call in (lambda a, x: (a + 1) @ x, lambda a, x: a[:, ::2] @ x[::2], lambda a, x: (a * x[:, None]).sum(0) + 0.0):
        assert "matmul" not in names(call, (100, 100), (100,))
    assert "matmul" not in names(lambda a, x: a @ x, (100, 100), (100,), dtype="c16")


def test_small_products_fuse() -> None:
    """What makes the factors, the product and what becomes of it: one kernel."""
    assert len(kinds(lambda a, x: np.exp(-(np.cos(a) @ (x + 1))), (30, 40), (40,))) == 1
    assert len(kinds(lambda a, b: np.tanh(a @ b) * 2, (3, 3), (3, 3))) == 1


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
def test_special_values(special: float) -> None:
    a, b = np.eye(3) * 2, np.ones((3, 3))
    a[1, 1], b[0, 2] = special, special
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(kg.kernel_graph(lambda a, b: a @ b, device="cpu")(a, b), a @ b)
