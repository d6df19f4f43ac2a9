"""A call of a library for deep neural networks -> its task, with the memory that it takes beside its arrays."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .....runtime.program.program import Library, Task
from ....core.cost import HALF_SPEED, work_cost_model_of_gpu
from ....layout.operands import StridedBufferArray
from .launches import GpuAlgorithmBuilder


def lower_gpu_dnn_call(
    calls: GpuAlgorithmBuilder,
    reads: Sequence[StridedBufferArray],
    targets: Mapping[int, StridedBufferArray],
    options: Mapping[str, Any],
) -> None:
    """targets: of some of the results, by number; the others go to memory that nobody reads."""
    given = [calls.contiguous(a) for a in reads]
    results = [
        calls.result(targets[part]) if part in targets else calls.temporary(shape, dtype)
        for part, (shape, dtype) in enumerate(options["results"])
    ]
    nbytes = options["workspace"]
    writes = [*results, *([calls.temporary((nbytes,), np.uint8)] if nbytes else [])]
    attrs = (
        ("function", "dnn"),
        ("options", tuple(sorted(options.items()))),
        ("parts", tuple(range(len(writes)))),
    )
    moved = sum(math.prod(a.shape) * a.region.itemsize for a in (*given, *results))
    speed = HALF_SPEED if given[0].region.itemsize == 2 else 1.0
    calls.tasks.append(
        Task(
            options["operation"],
            Library("host", attrs),
            (),
            tuple(a.region for a in given),
            tuple(a.region for a in writes),
            cost=round(work_cost_model_of_gpu(calls.gpu).time(moved, options["flops"] / speed), 3),
            line=calls.line,
            flops=options["flops"],
        )
    )
    for part, target in targets.items():
        calls.deliver_result(results[part], target)
