"""Library calls that a GPU does in kernels of its own: a host call and the places of its arrays in, tasks out.

One row for each function of `runtime/interpret/numpy_calls.py` that has kernels; None from a row leaves the call to the
host.
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

Row = Callable[[Calls, Sequence[Array], Sequence[Array | None], Mapping[str, Any]], bool]

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
    writes: Sequence[Array | None],
    options: Mapping[str, Any],
    buffers: list[Buffer],
    line: str,
) -> list[Task] | None:
    """The tasks of a host call on a GPU; writes[i] is where result i goes, None where nobody wants it. None where there
    are no kernels for it, and then no buffers are left."""
    row = ROWS.get(function)
    if row is None or any(0 in a.shape for a in (*reads, *writes) if a is not None):
        return None
    count = len(buffers)
    calls = Calls(gpu, buffers, line, [])
    if row(calls, reads, writes, options):
        return calls.tasks
    del buffers[count:]
    return None
