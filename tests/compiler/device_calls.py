"""Runs a CUDA program whose library calls became kernels, on the emulator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kernelgraph.compiler.passes.materialize import MemoryLayout
from kernelgraph.compiler.pipeline import compile_graph_to_program
from kernelgraph.runtime.program.program import Constant, Int, Kernel, Pointer, Program
from tests.compiler.access_audit import _bytes_of

from . import cuda_emulator

BEHIND_BARRIERS = {"combine_parts"}  # tasks of one block, which writes an element again behind a barrier


def emulated(program: Program, arrays: Sequence[Any]) -> list[np.ndarray[Any, Any]]:
    """The bytes of the program's outputs; every task must be a kernel."""
    memory = [np.full(max(1, b.nbytes), 0xA5, np.uint8) for b in program.buffers]
    for number, array in zip(program.inputs, arrays, strict=True):
        memory[number] = _bytes_of(np.asarray(array))
    for task in program.tasks:
        assert isinstance(task.kernel, Kernel), task.name
        given: list[Any] = []
        shared: dict[tuple[int, int], Any] = {}
        for argument in task.arguments:
            if isinstance(argument, Pointer):
                key = (argument.buffer, argument.offset)
                if key not in shared:
                    place, again = (memory[argument.buffer], argument.offset), task.name in BEHIND_BARRIERS
                    shared[key] = cuda_emulator.pointer(*place, f"b{argument.buffer}", again)
                given.append(shared[key])
            else:
                assert isinstance(argument, (Int, Constant))
                is_int = isinstance(argument, Int)
                given.append(argument.value if is_int else np.frombuffer(argument.value, argument.dtype))
        cuda_emulator.run(task.kernel.source, task.kernel.name, task.grid, task.block, given)
    return [memory[o][: program.buffers[o].nbytes] for o in program.outputs]


def on_device(graph: Any, arrays: Sequence[Any]) -> list[np.ndarray[Any, Any]]:
    """The graph's outputs by its CUDA kernels on the emulator."""
    laid = [np.asarray(a) for a in arrays]
    program = compile_graph_to_program(graph, "cuda", [MemoryLayout(a.strides, a.flags.c_contiguous) for a in laid])
    found = emulated(program, arrays)
    types = [graph.nodes[o].type for o in graph.outputs]
    return [f.view(t.dtype).reshape(t.shape) for f, t in zip(found, types, strict=True)]
