"""Kernels on a GPU whose arrays pass 2^31 elements, in every family."""

from __future__ import annotations

from typing import Any

import pytest

from tests.end_to_end import large_arrays as large

pytestmark = pytest.mark.usefixtures("much_memory")
N = 2**31 + 5


@pytest.mark.parametrize("dtype", ["int8", "float16"])
def test_vectors(device: Any, dtype: str) -> None:
    large.check_vector("cuda", N, dtype)


@pytest.mark.parametrize("dtype", ["int8", "float16"])
def test_reductions(device: Any, dtype: str) -> None:
    large.check_reductions("cuda", N, dtype)


@pytest.mark.parametrize("dtype", ["int8", "float16"])
def test_matrices(device: Any, dtype: str) -> None:
    large.check_matrix("cuda", 46_341, 46_343, dtype)


def test_more_than_2_to_the_32_elements(device: Any) -> None:
    large.check_vector("cuda", 2**32 + 77, "int8")
