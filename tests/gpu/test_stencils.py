"""Stencils on a GPU give NumPy's bits, whatever the shapes, shifts and dtypes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernelgraph.compiler.pipeline import compile_graph_to_program
from kernelgraph.runtime.schedule.cost_model import MACHINES
from kernelgraph.runtime.schedule.schedule import schedule
from tests.compiler.stencils import KINDS, Stencil, graph_of, program_of, stencils
from tests.gpu.gpu_runs import Call

some = settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def check(device: Any, stencil: Stencil, seed: int, many: bool | None = None) -> None:
    """many: the size class of kernels with windows; None: what the size asks for."""
    arrays = stencil.arrays(seed)
    graph, used = graph_of(stencil, arrays)
    program = compile_graph_to_program(graph, "cuda") if many is None else program_of(graph, many)
    wanted = stencil(*arrays)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    executable = device.prepare(schedule(program, "auto", machine=MACHINES["cuda"]))
    for got, want in zip(Call(device, executable, used).results(wanted), wanted, strict=True):
        np.testing.assert_array_equal(got, want)


@some
@given(stencils(rows=70, columns=1100), st.booleans(), st.integers(0, 2**32 - 1))
def test_random(device: Any, stencil: Stencil, many: bool, seed: int) -> None:
    check(device, stencil, seed, many)


def around(axes: int) -> tuple[tuple[int, ...], ...]:
    """All of the 3 x 3 x ... neighbours."""
    return tuple(np.ndindex(*[3] * axes))


@pytest.mark.parametrize("dtype", sorted(set(KINDS)))
@pytest.mark.parametrize("columns", [254, 255])
def test_dtypes(device: Any, dtype: str, columns: int) -> None:
    check(device, Stencil((63, columns), (2, 2), around(2), dtype, "none", False), 1)


@pytest.mark.parametrize("shape", [(5_000_001,), (2046, 2300), (2045, 2301), (180, 170, 150), (181, 171, 151)])
def test_sizes_that_fill_the_gpu(device: Any, shape: tuple[int, ...]) -> None:
    check(device, Stencil(shape, (2,) * len(shape), around(len(shape)), "f32", "whole", False), 2)
