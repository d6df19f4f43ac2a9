"""Loop nests, graphs and plans run on a device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kernelgraph.compiler import pipeline
from kernelgraph.compiler.kernel.loop_nest import LoopNest
from kernelgraph.compiler.targets.cuda.kernel import cuda_grid_and_block, cuda_kernel_of_nest
from kernelgraph.runtime.program.plan import Launch, Plan, Record
from kernelgraph.runtime.program.program import Buffer, Int, Pointer, Program, Region, Scalar, Task
from kernelgraph.runtime.schedule.cost_model import MACHINES
from kernelgraph.runtime.schedule.schedule import schedule
from tests.compiler.cuda_nests import Array, array, reference


def notes_beside_times(executable: Any) -> list[str]:
    """An executable's notes but for those of slow products, which come while others use the card."""
    return [note for note in executable.notes if " predicted" not in note]


def run_nest(device: Any, nest: LoopNest, arrays: Sequence[Array], sizes: Sequence[int], scalars: Any = ()) -> None:
    """Run a nest on copies of the arrays' memory and bring the memory back."""
    strides = [
        a.strides[axis]
        for operand, a in zip(nest.operands, arrays, strict=True)
        for axis, c in enumerate(operand.layout)
        if c == "s"
    ]
    pointers = [Pointer(k, a.origin) for k, a in enumerate(arrays)]
    numbers = [Scalar(k, d.name) for k, d in enumerate(nest.scalars)]
    regions = tuple(Region(k, 0, (a.data.size,), (1,), 1, "uint8") for k, a in enumerate(arrays))
    grid, block = cuda_grid_and_block(nest, sizes, device.properties)
    ints = [Int(n) for n in (*sizes, *strides)]
    task = Task(
        nest.name, cuda_kernel_of_nest(nest), (*pointers, *ints, *numbers), regions, regions, grid=grid, block=block
    )
    buffers = tuple(Buffer(a.data.size, "input") for a in arrays)
    everything = tuple(range(len(arrays)))
    program = Program(buffers, (task,), everything, everything, tuple(d.name for d in nest.scalars), "cuda")
    plan = Plan(program, (Launch(0, 0), Record(0, 0)), 1, 1, (None,) * len(arrays), 0, (0,) * len(arrays))
    memories = [device.allocate(a.data.size) for a in arrays]
    after = [(k, device.upload(a.data, m)) for k, (a, m) in enumerate(zip(arrays, memories, strict=True))]
    events = device.prepare(plan).run([m.address for m in memories], None, scalars, after)
    events[0].wait()
    for a, memory in zip(arrays, memories, strict=True):
        device.download(memory, a.data)


def check_nest(
    device: Any, nest: LoopNest, sizes: Sequence[int], seed: int, scalars: Any = (), rtol: float = 1e-5
) -> None:
    """The device and NumPy agree, and nothing beside the elements was touched."""
    rng = np.random.default_rng(seed)
    arrays = [array(rng, o, sizes) for o in nest.operands]
    wanted = [a.copy() for a in arrays]
    run_nest(device, nest, arrays, sizes, scalars)
    reference(nest, wanted, sizes, scalars)
    for got, want in zip(arrays, wanted, strict=True):
        if got.view.dtype.kind in "biu":
            np.testing.assert_array_equal(got.view, want.view)
        else:
            wide = np.complex128 if got.view.dtype.kind == "c" else np.float64
            np.testing.assert_allclose(got.view.astype(wide), want.view.astype(wide), rtol=rtol, atol=rtol)
        want.view[...] = got.view
        np.testing.assert_array_equal(got.data, want.data)


def plan_of(graph: Any, streams: Any = "auto") -> Plan:
    return schedule(pipeline.compile_graph_to_program(graph, "cuda"), streams, machine=MACHINES["cuda"])


class Call:
    """One call of an executable on host arrays; what it uses lives as long as the object."""

    def __init__(self, device: Any, executable: Any, arrays: Sequence[Any]) -> None:
        plan = executable.plan
        self.device = device
        memories: list[Any] = [None] * len(plan.program.buffers)
        self.kept = [device.allocate(max(1, a.nbytes)) for a in arrays]
        after = []
        for buffer, a, memory in zip(plan.program.inputs, arrays, self.kept, strict=True):
            after.append((buffer, device.upload(a, memory)))
            memories[buffer] = memory.address
        sizes = {b: max(1, plan.program.buffers[b].nbytes) for b in plan.program.outputs}
        outputs = {b: device.allocate(n) for b, n in sizes.items()}
        for b, memory in outputs.items():
            memories[b] = memory.address
        self.arena = device.allocate(plan.arena_bytes) if plan.arena_bytes else None
        self.events = executable.run(memories, self.arena.address if self.arena else None, (), after)
        self.memories = [outputs[b] for b in plan.program.outputs]

    def results(self, like: Sequence[Any]) -> list[Any]:
        """The outputs, once they are there, as arrays like the given ones."""
        found = []
        for event, memory, wanted in zip(self.events, self.memories, like, strict=True):
            event.wait()
            got = np.empty_like(wanted)
            self.device.download(memory, got)
            found.append(got)
        return found
