"""Host calls that a GPU does in kernels of its own: a call and where its arrays lie in, tasks out.

One row for each function of `runtime/interpret/numpy_calls.py` that has such kernels. Which calls they do is decided
before, in `compiler/decompose/rules.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from .....runtime.program.gpu_properties import GpuProperties
from .....runtime.program.program import Buffer, Task
from ....layout.operands import Array
from .bincount import bincount
from .launches import Calls
from .radix_select import kth, topk
from .scan import accumulate, scan
from .scatter import combine_at, last_places
from .sort import argsort, sort

Row = Callable[[Calls, Sequence[Array], Array, Mapping[str, Any]], None]

ROWS: dict[str, Row] = {
    "cumsum": partial(scan, op="add"),
    "cumprod": partial(scan, op="mul"),
    "accumulate": accumulate,
    "bincount": bincount,
    "last_places": last_places,
    "combine_at": combine_at,
    "sort": sort,
    "partition": sort,
    "argsort": argsort,
    "argpartition": argsort,
    "kth": kth,
    "topk": topk,
}


def device_calls(
    gpu: GpuProperties,
    function: str,
    reads: Sequence[Array],
    target: Array,
    options: Mapping[str, Any],
    buffers: list[Buffer],
    line: str,
) -> list[Task]:
    """The tasks of a host call on a GPU, which may add buffers. target: where its result goes."""
    calls = Calls(gpu, buffers, line, [])
    ROWS[function](calls, reads, target, options)
    return calls.tasks
