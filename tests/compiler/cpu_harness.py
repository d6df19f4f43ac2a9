"""Compile a LoopNest's CPU text and call it on NumPy arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from kernelgraph.compiler.kernel.loop_nest import LoopNest
from kernelgraph.compiler.targets.cpu.kernel import cpu_launch_units, print_llvm_kernel
from kernelgraph.runtime.codegen import llvm_jit
from kernelgraph.runtime.core.settings import override

AVX2 = ("avx512", "avx10", "amx")  # features that an AVX2 machine has not


def vector_library() -> str | None:
    """libmvec, where this machine has it."""
    features = llvm.get_host_cpu_features()
    try:
        ctypes.CDLL("libmvec.so.1", mode=ctypes.RTLD_GLOBAL)
        llvm.load_library_permanently("libmvec.so.1")
    except (OSError, RuntimeError):
        return None
    return "libmvec-avx512" if features.get("avx512f") else "libmvec-avx2" if features.get("avx2") else None


class Compiled:
    """A kernel in this process. `slots` lays out its parameters; calling runs units begin..end."""

    def __init__(self, nest: LoopNest, without: Sequence[str] = (), **options: Any) -> None:
        self.nest = nest
        self.text = print_llvm_kernel(nest, **options)
        has = [name for name, on in llvm.get_host_cpu_features().items() if on]
        self.features = ",".join(f"-{name}" for name in has if name.startswith(tuple(without)))
        with override(cpu_features=self.features):
            code = llvm_jit.compile_llvm_ir(self.text, nest.name)
        self.run = code.function(nest.name, None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)

    @property
    def assembly(self) -> str:
        with override(cpu_features=self.features):
            return llvm_jit.assembly_of_llvm_ir(self.text, self.nest.name)

    def slots(self, arrays: Sequence[Any], sizes: Sequence[int], scalars: Sequence[Any] = ()) -> np.ndarray[Any, Any]:
        """arrays[i] is operand i seen over all axes (np.broadcast_to'd)."""
        raw = [int(a.ctypes.data) for a in arrays] + list(sizes)
        for operand, array in zip(self.nest.operands, arrays, strict=True):
            strides = [s // array.itemsize for s in array.strides]
            assert len(strides) == len(operand.layout)
            raw += [s for s, letter in zip(strides, operand.layout, strict=True) if letter == "s"]
        block = np.zeros(len(raw) + len(scalars), np.int64)
        block[: len(raw)] = raw
        for i, (value, dtype) in enumerate(zip(scalars, self.nest.scalars, strict=True)):
            block[len(raw) + i : len(raw) + i + 1].view(dtype)[0] = value
        return block

    def __call__(
        self, arrays: Sequence[Any], sizes: Sequence[int], scalars: Sequence[Any] = (), cuts: Sequence[float] = ()
    ) -> None:
        """Run all units, split at the given fractions."""
        slots = self.slots(arrays, sizes, scalars)
        count, _ = cpu_launch_units(self.nest, sizes)
        edges = [0, *sorted(int(c * count) for c in cuts), count]
        for begin, end in pairwise(edges):
            self.run(slots.ctypes.data, begin, end)


def array_in(rng: np.random.Generator, values: np.ndarray[Any, Any], layout: str) -> np.ndarray[Any, Any]:
    """An array over all axes whose strides fit `layout`; where it does not move it repeats the first element.

    Axes marked `s` get a stride that may be negative or larger than needed.
    """
    moving = [a for a, letter in enumerate(layout) if letter != "0"]
    order = sorted(moving, key=lambda a: (layout[a] == "1", a))
    steps = {a: 1 if layout[a] == "1" else int(rng.choice([-2, -1, 2, 3])) for a in order}
    lengths = [values.shape[a] * abs(steps[a]) + (0 if layout[a] == "1" else 1) for a in order]
    store = np.full(lengths, 77, values.dtype)
    view = store[tuple(slice(None, None, steps[a])[:] if False else _slice(steps[a], values.shape[a]) for a in order)]
    view = np.transpose(view, [order.index(a) for a in moving]) if moving else view
    full = (
        view.reshape([values.shape[a] if a in moving else 1 for a in range(len(layout))])
        if not moving
        else (view[tuple(slice(None) if a in moving else None for a in range(len(layout)))])
    )
    full[...] = values[tuple(slice(None) if a in moving else slice(0, 1) for a in range(len(layout)))]
    return np.lib.stride_tricks.as_strided(
        full, values.shape, [s if a in moving else 0 for a, s in enumerate(full.strides)], writeable=True
    )


def _slice(step: int, length: int) -> slice:
    if step > 0:
        return slice(0, step * length, step)
    stop = (step * length) - 1
    return slice(-1, stop, step)


def reference(nest: LoopNest, arrays: Sequence[Any], sizes: Sequence[int], scalars: Sequence[Any] = ()) -> list[Any]:
    """What the operands hold after the kernel, computed with NumPy by the primitives' own meaning."""
    from tests.compiler.nest_evaluator import evaluate_phases_of_loop_nest

    after = [a.copy() for a in arrays]

    def load(operand: int, part: int) -> Any:
        layout = nest.operands[operand].layout
        a = arrays[operand][tuple(slice(None) if letter != "0" else slice(0, 1) for letter in layout)]
        return (a.real, a.imag)[part] if a.dtype.kind == "c" else a

    def store(operand: int, part: int, value: Any) -> None:
        target = after[operand]
        if target.dtype.kind == "c":
            target = (target.real, target.imag)[part]
        target[...] = value

    evaluate_phases_of_loop_nest(nest.phases, sizes, nest.parallel, load, store, scalars)
    return after
