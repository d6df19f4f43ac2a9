"""Which calls of np.linalg the GPU's libraries do: by shapes and options, without a GPU."""

from __future__ import annotations

from typing import Any

import pytest

from kernelgraph.runtime.devices.cuda.libraries.cusolver_steps import make_cusolver_step
from kernelgraph.runtime.devices.cuda.libraries.steps import make_gpu_library_step
from kernelgraph.runtime.program.program import Library, Region, Task


def region(shape: tuple[int, ...], dtype: str = "float64") -> Region:
    strides, step = [], 8
    for n in reversed(shape):
        strides.insert(0, step)
        step *= n
    return Region(0, 0, shape, tuple(strides), 8, dtype)


def step(name: str, reads: list[Region], writes: list[Region], **options: Any) -> Any:
    driver: Any = None
    task = Task(name, Library("host"), (), tuple(reads), tuple(writes))
    return make_cusolver_step(driver, driver, task, name, options)


@pytest.mark.parametrize(
    ("name", "reads", "writes", "matrices"),
    [
        ("inv", [(64, 64)], [(64, 64)], 1),
        ("inv", [(3, 2, 64, 64)], [(3, 2, 64, 64)], 6),  # one after another
        ("inv", [(128, 9, 9)], [(128, 9, 9)], 1),  # all by one call
        ("inv", [(127, 9, 9)], [(127, 9, 9)], 0),
        ("inv", [(63, 63)], [(63, 63)], 0),
        ("inv", [(1 << 15, 1 << 15)], [(1 << 15, 1 << 15)], 0),
        ("solve", [(70, 70), (70,)], [(70,)], 1),
        ("solve", [(5, 70, 70), (5, 70, 3)], [(5, 70, 3)], 5),
        ("solve", [(70, 70, 70), (70, 70)], [(70, 70, 70)], 0),  # one matrix of columns for all
        ("solve", [(200, 9, 9), (200, 9, 1)], [(200, 9, 1)], 1),
        ("solve", [(200, 9, 9), (200, 9, 2)], [(200, 9, 2)], 0),
        ("eigh", [(2, 70, 70)], [(2, 70), (2, 70, 70)], 2),
        ("eigh", [(200, 9, 9)], [(200, 9), (200, 9, 9)], 0),
        ("eigh_rows", [(32, 9, 9)], [(32, 9), (32, 9, 9)], 1),
        ("eigh_rows", [(31, 9, 9)], [(31, 9), (31, 9, 9)], 0),
        ("eigvalsh", [(4, 8, 60, 60)], [(4, 8, 60)], 1),
        ("svd_whole", [(32, 9, 32)], [(32, 9, 9), (32, 9), (32, 32, 32)], 1),
        ("svdvals", [(32, 9, 33)], [(32, 9)], 0),
        ("svdvals", [(32, 1, 9)], [(32, 1)], 0),
        ("svd", [(70, 80)], [(70, 70), (70,), (80, 80)], 1),
        ("svd", [(70, 80)], [(70, 70)], 0),
        ("qr_factors", [(4, 80, 64)], [(4, 80, 64), (4, 64, 64)], 4),
        ("lu", [(64, 64)], [(64, 64), (64,)], 1),
        ("pinv", [(64, 64)], [(64, 64)], 0),
    ],
)
def test_shapes(name: str, reads: Any, writes: Any, matrices: int) -> None:
    found = step(name, [region(s) for s in reads], [region(s) for s in writes])
    assert (found._count if found else 0) == matrices


def test_options_and_kinds() -> None:
    square = region((64, 64))
    assert step("cholesky", [square], [square], upper=False)
    assert not step("cholesky", [square], [square], upper=True)
    assert not step("svdvals", [square], [region((64,))], hermitian=True)
    assert not step("solve", [square, region((64, 1), "float32")], [region((64, 1))])
    assert not step("inv", [region((64, 64), "int64")], [square])
    assert step("svd", [square], [region((64,))], compute_uv=False)


@pytest.mark.parametrize(
    ("function", "parts", "shapes", "found"),
    [
        ("eigh", (0,), [(70,)], True),
        ("eigh", (1,), [(70, 70)], False),
        ("eigh", (0, 1), [(70,), (70, 70)], True),
        ("svd", (1,), [(70,)], True),
        ("svd", (0, 1), [(70, 70), (70,)], False),
    ],
)
def test_values_without_their_vectors(function: str, parts: Any, shapes: Any, found: bool) -> None:
    attrs = (("function", f"linalg.{function}"), ("options", ()), ("parts", parts))
    task = Task(function, Library("host", attrs), (), (region((70, 70)),), tuple(map(region, shapes)))
    anything: Any = None
    assert (make_gpu_library_step(anything, anything, task, anything) is not None) == found
