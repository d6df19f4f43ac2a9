"""Kernel text to PTX and cubin: intrinsics for lanes, loads, stores, warps and atomics, packed kernels; the only folder
that knows numba.cuda.

In reading order: compile, entries, kernel_functions, numba_front_end, numba_parts, vocabulary, lanes, primitives,
rounded_division, loads_and_stores, warp_and_atomics, user_functions.
"""
