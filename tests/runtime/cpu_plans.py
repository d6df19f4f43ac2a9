"""Tiny kernels in LLVM IR text and plans over them, for the tests of the CPU device."""

from __future__ import annotations

import random

import numpy as np

from kernelgraph.runtime.program.plan import Launch, Plan, Record, Step, Wait
from kernelgraph.runtime.program.program import (
    Buffer,
    Int,
    Kernel,
    Library,
    Pointer,
    Program,
    Region,
    Scalar,
    Task,
    task_dependences_of_program,
)


def elementwise(name: str, inputs: int, body: str, scalars: tuple[str, ...] = ()) -> Kernel:
    """Over float32 arrays. Slots: inputs, output, length, scalars; `body` computes %r from %v0, %v1 .. %s0, %s1 .."""
    lines = []
    for i in range(inputs + 1):
        lines += [f"  %p{i} = getelementptr i64, ptr %slots, i64 {i}", f"  %a{i} = load ptr, ptr %p{i}"]
    for i in range(len(scalars)):
        lines += [f"  %q{i} = getelementptr i64, ptr %slots, i64 {inputs + 2 + i}", f"  %s{i} = load float, ptr %q{i}"]
    loads = []
    for i in range(inputs):
        loads += [f"  %e{i} = getelementptr float, ptr %a{i}, i64 %i", f"  %v{i} = load float, ptr %e{i}"]
    text = f"""
define void @{name}(ptr %slots, i64 %begin, i64 %end) {{
entry:
{chr(10).join(lines)}
  %any = icmp ult i64 %begin, %end
  br i1 %any, label %loop, label %done
loop:
  %i = phi i64 [ %begin, %entry ], [ %next, %loop ]
{chr(10).join(loads)}
{body}
  %out = getelementptr float, ptr %a{inputs}, i64 %i
  store float %r, ptr %out
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %end
  br i1 %more, label %loop, label %done
done:
  ret void
}}
"""
    return Kernel(name, "cpu", text, ("ptr",) * (inputs + 1) + ("i64",) + scalars)


ADD = elementwise("add", 2, "  %r = fadd float %v0, %v1")
DOUBLE = elementwise("double", 1, "  %r = fadd float %v0, %v0")
SCALE = elementwise("scale", 1, "  %r = fmul float %v0, %s0", ("float32",))

# Adds 1 to every unit's int32, and 1 to the number of calls, so that a test sees chunks.
COUNT = Kernel(
    "count",
    "cpu",
    """
define void @count(ptr %slots, i64 %begin, i64 %end) {
entry:
  %a = load ptr, ptr %slots
  %q = getelementptr i64, ptr %slots, i64 1
  %calls = load ptr, ptr %q
  %old = atomicrmw add ptr %calls, i64 1 seq_cst
  br label %loop
loop:
  %i = phi i64 [ %begin, %entry ], [ %next, %loop ]
  %e = getelementptr i32, ptr %a, i64 %i
  %o = atomicrmw add ptr %e, i32 1 seq_cst
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %end
  br i1 %more, label %loop, label %done
done:
  ret void
}
""",
    ("ptr", "ptr"),
)

# out = 31 out + tag + 7 x + 5 y, after `work` turns of nothing: its results show any wrong order.
HASH = Kernel(
    "hash",
    "cpu",
    """
define void @hash(ptr %slots, i64 %begin, i64 %end) {
entry:
  %q0 = getelementptr i64, ptr %slots, i64 0
  %q1 = getelementptr i64, ptr %slots, i64 1
  %q2 = getelementptr i64, ptr %slots, i64 2
  %q3 = getelementptr i64, ptr %slots, i64 3
  %q4 = getelementptr i64, ptr %slots, i64 4
  %x = load ptr, ptr %q0
  %y = load ptr, ptr %q1
  %out = load ptr, ptr %q2
  %tag = load i64, ptr %q3
  %work = load i64, ptr %q4
  br label %spin
spin:
  %n = phi i64 [ 0, %entry ], [ %m, %spin ]
  %m = add i64 %n, 1
  call void asm sideeffect "", ""()
  %go = icmp ult i64 %m, %work
  br i1 %go, label %spin, label %run
run:
  br label %loop
loop:
  %i = phi i64 [ %begin, %run ], [ %next, %loop ]
  %xe = getelementptr i64, ptr %x, i64 %i
  %ye = getelementptr i64, ptr %y, i64 %i
  %oe = getelementptr i64, ptr %out, i64 %i
  %xv = load i64, ptr %xe
  %yv = load i64, ptr %ye
  %ov = load i64, ptr %oe
  %a = mul i64 %ov, 31
  %b = add i64 %a, %tag
  %c = mul i64 %xv, 7
  %d = add i64 %b, %c
  %e = mul i64 %yv, 5
  %f = add i64 %d, %e
  store i64 %f, ptr %oe
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %end
  br i1 %more, label %loop, label %done
done:
  ret void
}
""",
    ("ptr", "ptr", "ptr", "i64", "i64"),
)

# Each unit adds 1 to the second number of slot 0, waits (some tens of seconds at most) for the first to be other
# than 0, then adds 1 to slot 1's.
BLOCKED = Kernel(
    "blocked",
    "cpu",
    """
define void @blocked(ptr %slots, i64 %begin, i64 %end) {
entry:
  %flag = load ptr, ptr %slots
  %q1 = getelementptr i64, ptr %slots, i64 1
  %out = load ptr, ptr %q1
  br label %unit
unit:
  %i = phi i64 [ %begin, %entry ], [ %next, %go ]
  %arrived = getelementptr i64, ptr %flag, i64 1
  %before = atomicrmw add ptr %arrived, i64 1 seq_cst
  br label %spin
spin:
  %n = phi i64 [ 0, %unit ], [ %m, %spin ]
  %m = add i64 %n, 1
  call void asm sideeffect "", "~{memory}"()
  %now = load atomic volatile i64, ptr %flag seq_cst, align 8
  %open = icmp ne i64 %now, 0
  %late = icmp ugt i64 %m, 30000000000
  %leave = or i1 %open, %late
  br i1 %leave, label %go, label %spin
go:
  %old = atomicrmw add ptr %out, i64 1 seq_cst
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %end
  br i1 %more, label %unit, label %done
done:
  ret void
}
""",
    ("ptr", "ptr"),
)


def region(buffer: int, n: int, dtype: str = "float32", offset: int = 0) -> Region:
    itemsize = np.dtype(dtype).itemsize
    return Region(buffer, offset, (n,), (itemsize,), itemsize, dtype)


def kernel_task(kernel: Kernel, reads, write: int, n: int, scalars=(), grain: int = 256, cost: float = 1.0) -> Task:
    """A task of an `elementwise` kernel over n float32 numbers."""
    arguments = (*map(Pointer, reads), Pointer(write), Int(n), *(Scalar(i, "float32") for i in scalars))
    regions = tuple(region(b, n) for b in reads)
    return Task(kernel.name, kernel, arguments, regions, (region(write, n),), units=n, grain=grain, cost=cost)


def library_task(name: str, reads, writes, cost: float = 1.0, **attrs) -> Task:
    library = Library(name, tuple(attrs.items()))
    return Task(name, library, (), tuple(reads), tuple(writes), cost=cost, line="model.py:7")


def in_order(buffers, tasks, inputs, outputs, scalars=(), streams: int = 1) -> Plan:
    """All tasks on stream 0, an event after the last for every output; temporaries one after the other in the arena."""
    program = Program(tuple(buffers), tuple(tasks), tuple(inputs), tuple(outputs), tuple(scalars))
    steps = [Launch(0, t) for t in range(len(tasks))] + [Record(0, e) for e in range(len(outputs))]
    offsets, arena = place(buffers)
    return Plan(program, tuple(steps), streams, len(outputs), offsets, arena, tuple(range(len(outputs))))


def place(buffers) -> tuple[tuple[int | None, ...], int]:
    """A place of its own for every temporary."""
    offsets, at = [], 0
    for b in buffers:
        offsets.append(at if b.kind == "temp" else None)
        at += (b.nbytes + 63) // 64 * 64 if b.kind == "temp" else 0
    return tuple(offsets), at


def call(device, executable, arrays, scalars=(), after=()):
    """Upload the inputs, run once, wait for everything, download float32 outputs shaped like the first input."""
    plan = executable.plan
    memories, kept = start_memories(device, plan, arrays)
    arena = device.allocate(max(1, plan.arena_bytes))
    events = executable.run(memories, arena.address, scalars, after)
    for event in events:
        event.wait()
    results = []
    for o in plan.program.outputs:
        host = np.empty(plan.program.buffers[o].nbytes // 4, np.float32)
        device.download(kept[o], host)
        results.append(host)
    return results


def start_memories(device, plan, arrays):
    places = zip(plan.program.buffers, plan.offsets, strict=True)
    kept = [device.allocate(b.nbytes) if o is None else None for b, o in places]
    for number, array in zip(plan.program.inputs, arrays, strict=True):
        device.upload(array, kept[number])
    return [None if k is None else k.address for k in kept], kept


def hash_program(rng: random.Random, units: int, tasks: int, temporaries: int, work: int = 2000) -> Program:
    """Tasks of HASH over random buffers of int64: two inputs (which are only read), temporaries, two outputs."""
    kinds = ["input"] * 2 + ["temp"] * temporaries + ["output"] * 2
    made = []
    for number in range(tasks):
        x, y, out = rng.randrange(len(kinds)), rng.randrange(len(kinds)), rng.randrange(2, len(kinds))
        arguments = (Pointer(x), Pointer(y), Pointer(out), Int(number + 1), Int(rng.choice([1, work // 20, work])))
        reads = tuple(region(b, units, "int64") for b in (x, y, out))
        grain, cost = rng.choice([1, 7, units]), rng.choice([1.0, 50.0])
        made.append(
            Task(
                f"h{number}",
                HASH,
                arguments,
                reads,
                (region(out, units, "int64"),),
                frozenset((out,)),
                units=units,
                grain=grain,
                cost=cost,
            )
        )
    buffers = tuple(Buffer(8 * units, kind) for kind in kinds)
    return Program(buffers, tuple(made), (0, 1), (len(kinds) - 2, len(kinds) - 1))


def hash_reference(program: Program, arrays: list[np.ndarray]) -> None:
    """Run a `hash_program` in order, in NumPy, on one array for each buffer."""
    with np.errstate(over="ignore"):
        for task in program.tasks:
            x, y, out = (arrays[a.buffer] for a in task.arguments[:3])
            out[...] = 31 * out + task.arguments[3].value + 7 * x + 5 * y


def random_plan(rng: random.Random, program: Program, streams: int) -> Plan:
    """Tasks on random streams, issued in a random order that the dependences allow, with a wait for each of them."""
    before = task_dependences_of_program(program)
    tasks = range(len(program.tasks))
    stream = [rng.randrange(streams) for _ in tasks]
    steps: list[Step] = []
    event: dict[int, int] = {}
    waiting = set(tasks)
    events = 0
    while waiting:
        task = rng.choice([t for t in sorted(waiting) if not before[t] & waiting])
        waiting.remove(task)
        steps += [Wait(stream[task], event[t]) for t in sorted(before[task]) if stream[t] != stream[task]]
        steps.append(Launch(stream[task], task))
        if any(task in before[t] and stream[t] != stream[task] for t in waiting):
            event[task] = events
            steps.append(Record(stream[task], events))
            events += 1
    completion = []
    for output in program.outputs:
        users = {stream[t] for t in tasks if output in {r.buffer for r in program.tasks[t].reads}}
        last = min(users, default=0)
        for other in sorted(users - {last}):
            steps += [Record(other, events), Wait(last, events)]
            events += 1
        steps.append(Record(last, events))
        completion.append(events)
        events += 1
    offsets, arena = place(program.buffers)
    urgent = frozenset(s for s in range(streams) if rng.random() < 0.3)
    return Plan(program, tuple(steps), streams, events, offsets, arena, tuple(completion), urgent)
