"""This machine's vector units in, what kernels may use of them out: register width and vector mathematics."""

from __future__ import annotations

from . import llvm_jit, symbols


def vector_register_bytes() -> int:
    """The width of a vector register."""
    have = llvm_jit.enabled_cpu_features()
    return 64 if "avx512f" in have else 32 if "avx2" in have else 16


def widest_vector_libm() -> str | None:
    """The widest vector mathematics that can be called: `libmvec-avx512`, `libmvec-avx2` or None."""
    have = llvm_jit.enabled_cpu_features()
    for name, feature, probe in (("avx512", "avx512f", "_ZGVeN16v_expf"), ("avx2", "avx2", "_ZGVdN8v_expf")):
        if feature in have and symbols.find_c_function(probe) is not None:
            return f"libmvec-{name}"
    return None
