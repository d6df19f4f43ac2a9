"""Every kernel family on the CPU agrees with NumPy: on random shapes, layouts and dtypes, on every width of vectors
that this CPU has, with and without the system's vector mathematics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernelgraph.compiler.targets import target
from kernelgraph.runtime.codegen import elf_loader, llvm_jit
from kernelgraph.runtime.codegen.llvm_jit import jit_vector_register_bytes, widest_vector_libm_of_cpu
from kernelgraph.runtime.core.settings import override
from tests.counts import examples

from .families import FAMILIES, check

RELAXED = {"deadline": None, "suppress_health_check": list(HealthCheck)}


@pytest.mark.parametrize("family", FAMILIES)
@given(data=st.data())
@settings(max_examples=examples(25), **RELAXED)
def test_families(family: str, data: Any) -> None:
    check(data.draw(FAMILIES[family]()), "cpu")


# name -> (settings, bytes of a register, whether libmvec may be called)
UNITS: dict[str, tuple[dict[str, str], int, bool]] = {
    "AVX-512 without libmvec": ({}, 64, False),
    "AVX2": ({"cpu_features": "-avx512f"}, 32, True),
    "AVX2 without libmvec": ({"cpu_features": "-avx512f"}, 32, False),
    "SSE2": ({"cpu_name": "x86-64"}, 16, True),
}


@pytest.fixture(params=UNITS)
def unit(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    changes, width, library = UNITS[request.param]
    if not {64: {"avx512f"}, 32: {"avx2"}, 16: {"sse2"}}[width] <= llvm_jit.llvm_cpu_features():
        pytest.skip("this CPU has no such vectors")
    if not library:
        find = elf_loader.find_c_function_address
        monkeypatch.setattr(
            elf_loader, "find_c_function_address", lambda name: None if name.startswith("_ZGV") else find(name)
        )
    with override(**changes):
        assert jit_vector_register_bytes() == width
        assert library or widest_vector_libm_of_cpu() is None
        target._dispatch_kernel_printing_to_cpu_target.cache_clear()
        yield request.param
    target._dispatch_kernel_printing_to_cpu_target.cache_clear()


@pytest.mark.parametrize("family", FAMILIES)
@given(data=st.data())
@settings(max_examples=6, **RELAXED)
def test_families_on_other_vector_units(unit: str, family: str, data: Any) -> None:
    check(data.draw(FAMILIES[family]()), "cpu")
