"""Host calls that a GPU does in kernels of its own. A call and where its arrays lie in, tasks out.

One row for each function of `runtime/interpret/numpy_calls.py` that has such kernels. Which calls they do is decided
before, in `compiler/decompose/rules.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from .....runtime.program.device import GpuProperties
from .....runtime.program.program import Buffer, Task
from ....layout.operands import StridedBufferArray
from .dnn import lower_gpu_dnn_call
from .launches import GpuAlgorithmBuilder
from .ordered_scatter import lower_gpu_combine_in_order, lower_gpu_places_in_order
from .radix_select import lower_gpu_kth_values, lower_gpu_topk
from .scan import lower_gpu_cumulative_scan, lower_gpu_ufunc_accumulate
from .scatter import lower_gpu_bincount, lower_gpu_last_occurrences, lower_gpu_ufunc_at
from .sort import lower_gpu_argsort, lower_gpu_sort

Row = Callable[[GpuAlgorithmBuilder, Sequence[StridedBufferArray], StridedBufferArray, Mapping[str, Any]], None]

ROWS: dict[str, Row] = {
    "cumsum": partial(lower_gpu_cumulative_scan, op="add"),
    "cumprod": partial(lower_gpu_cumulative_scan, op="mul"),
    "accumulate": lower_gpu_ufunc_accumulate,
    "bincount": lower_gpu_bincount,
    "last_places": lower_gpu_last_occurrences,
    "combine_at": lower_gpu_ufunc_at,
    "places_in_order": lower_gpu_places_in_order,
    "combine_in_order": lower_gpu_combine_in_order,
    "sort": lower_gpu_sort,
    "partition": lower_gpu_sort,
    "argsort": lower_gpu_argsort,
    "argpartition": lower_gpu_argsort,
    "kth": lower_gpu_kth_values,
    "topk": lower_gpu_topk,
}


def lower_gpu_call(
    gpu: GpuProperties,
    function: str,
    reads: Sequence[StridedBufferArray],
    results: Mapping[int, StridedBufferArray],
    options: Mapping[str, Any],
    buffers: list[Buffer],
    line: str,
) -> list[Task]:
    """The tasks of a host call on a GPU, which may add buffers. results: where those that are wanted go."""
    calls = GpuAlgorithmBuilder(gpu, buffers, line, [])
    if function == "dnn":
        lower_gpu_dnn_call(calls, reads, results, options)
    else:
        (target,) = results.values()
        ROWS[function](calls, reads, target, options)
    return calls.tasks
