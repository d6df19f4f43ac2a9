"""Convolutions and attention by cuDNN, through the package `cudnn` (nvidia-cudnn-frontend). A call as plain data in;
out, a plan that is built once for all calls like it, and its work on a stream.

Nothing is imported before the first question. What cannot be loaded or built is a refusal in words, with which a
program is planned without cuDNN.
"""

from __future__ import annotations

import ctypes
import functools
import logging
import os
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module, metadata, util
from typing import Any

from ....core.disk_cache import DiskCache, sha256_digest
from ....core.settings import settings
from ....program.dnn import DnnCall, dnn_call_of_arrays, nbytes_of_dnn_tensor, parts_of_dnn_arrays
from ....program.program import Region, Task
from ..driver.driver import SUCCESS, CudaDriver, bytes_taken_by
from .trial_clock import TrialClock

PACKAGE, LIBRARY = "nvidia-cudnn-frontend", "libcudnn.so.9"
PLANS = 1024  # that are kept in memory
TRIED, TRIAL_SECONDS = 8, 0.1  # of cuDNN's ways to do a convolution, and for all of one
DTYPES = {"bfloat16": "BFLOAT16", "float16": "HALF", "float32": "FLOAT"}
# notes of algorithms that compute a float32 result in less than float32
INEXACT = ("TENSOR_CORE", "DOWN_CONVERT_INPUTS", "REDUCED_PRECISION_REDUCTION")
_CACHE = DiskCache("cudnn")


class CudnnPlan:
    """graph: the frontend's, built; None once the process ends. deserialized: made of bytes, it has one plan, which is
    enqueued without the frontend's search for the one that was chosen (50 us less)."""

    __slots__ = ("__weakref__", "_addresses", "_enqueue", "graph", "microseconds", "workspace")

    def __init__(self, graph: Any, arrays: int, deserialized: bool, microseconds: float | None = None) -> None:
        """microseconds: that it takes, where that was measured."""
        self.graph, self.workspace, self.microseconds = graph, int(graph.get_workspace_size()), microseconds
        self._addresses = (ctypes.c_void_p * arrays)()
        lowered = getattr(graph, "_lowered_graph", None) if deserialized else None
        self._enqueue: Any = getattr(lowered, "_execute_with_raw_ptrs", None)

    def enqueue(self, addresses: Sequence[int], workspace: int, handle: Any) -> None:
        """The work, of arrays at these addresses, on the handle's stream. For one thread at a time."""
        if self._enqueue is None:
            self.graph.execute(dict(enumerate(addresses, 1)), workspace, handle=handle)
        else:
            self._addresses[:] = [*addresses]
            self._enqueue(ctypes.addressof(self._addresses), len(addresses), workspace, handle.backend_handle, -1)

    def let_go(self) -> None:
        self.graph = self._enqueue = None


class Cudnn:
    """cuDNN on one GPU, which `enter` makes the calling thread's. load: gives the frontend's module. clock:
    by which the fastest of its ways to do a convolution is chosen, if there is one. handle_bytes: of the GPU's memory,
    which `memory_info` tells."""

    def __init__(
        self,
        gpu: str,
        enter: Callable[[], object],
        load: Callable[[], Any],
        memory_info: Callable[[], tuple[int, int] | None] = lambda: None,
    ) -> None:
        self._gpu, self._enter, self._load, self._memory_info = gpu, enter, load, memory_info
        self.handle_bytes = 0
        self.clock: TrialClock | None = None
        self._frontend: Any = None
        self._handle: Any = None
        self._broken = ""
        self._plans: OrderedDict[DnnCall, CudnnPlan | str] = OrderedDict()
        self._alive = weakref.WeakSet[CudnnPlan]()  # those in use are more than those that are remembered
        self._lock = threading.RLock()  # a handle serves one thread at a time

    def __repr__(self) -> str:
        return f"cuDNN by {PACKAGE} {_frontend_version()}, {library_of_cudnn() or LIBRARY}"

    def __str__(self) -> str:
        return "cuDNN"

    def __eq__(self, other: object) -> bool:
        return type(other) is Cudnn and (repr(other), other._gpu) == (repr(self), self._gpu)

    def __hash__(self) -> int:
        return hash((repr(self), self._gpu))

    def workspace(self, call: DnnCall) -> int | str:
        plan = self.plan(call)
        return plan if isinstance(plan, str) else plan.workspace

    def microseconds(self, call: DnnCall) -> float | None:
        plan = self.plan(call)
        return None if isinstance(plan, str) else plan.microseconds

    def run(self, plan: CudnnPlan, addresses: Sequence[int], workspace: int, stream: int) -> None:
        """Enqueue a plan. Raises what the frontend raises."""
        with self._lock:
            self._frontend.set_stream(self._handle, stream)
            plan.enqueue(addresses, workspace, self._handle)

    def plan(self, call: DnnCall) -> CudnnPlan | str:
        """What does a call, or why cuDNN does not. Who runs it holds it."""
        with self._lock:
            found = self._plans.get(call)
            if found is None:
                found = self._plans[call] = self._plan_built_or_refused(call)
                if len(self._plans) > PLANS:
                    self._plans.popitem(last=False)
            else:
                self._plans.move_to_end(call)
            return found

    def _plan_built_or_refused(self, call: DnnCall) -> CudnnPlan | str:
        self._enter()
        if self._handle is None and not self._broken:
            try:
                self._frontend = self._load()
                self._handle, self.handle_bytes = bytes_taken_by(self._memory_info, self._frontend.create_handle)
                weakref.finalize(self, _let_go_of_plans, self._alive)
            except Exception as error:  # of any kind: what is missing, too old or does not fit the driver
                self._broken = f"cuDNN cannot be used: {_first_line(error)}"
        if self._broken:
            return self._broken
        try:
            plan = self._plan_read_or_built(call)
        except Exception as error:
            return f"cuDNN has no engine for it: {_first_line(error)}"
        self._alive.add(plan)
        return plan

    def _plan_read_or_built(self, call: DnnCall) -> CudnnPlan:
        """Attention is compiled as it is built, which takes a second, and convolutions are timed: plans are kept on
        disk."""
        clock = self.clock if settings.tune and call.operation.startswith("convolution") else None
        key = sha256_digest(repr(self), self._gpu, repr(call), clock is not None)
        kept, took = _CACHE.get(key), _CACHE.get(sha256_digest(key, "microseconds"))
        if kept is not None:
            with suppress(Exception):  # of another version, say: it is built again
                return self._plan_of_bytes(kept, call, float(took) if took else None)
        graph = describe_cudnn_graph(self._frontend, self._handle, call)
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans([self._frontend.heur_mode.A, self._frontend.heur_mode.FALLBACK])
        if call.tensors[0].dtype == "float32" and call.option("precision") != "tf32":
            graph.deselect_numeric_notes([getattr(self._frontend.numerical_note, name) for name in INEXACT])
        graph.check_support()
        microseconds = self._build_fastest_plan(graph, call, clock) if clock is not None else None
        if microseconds is None:
            graph.build_plans()
        with suppress(Exception):
            made, about = graph.serialize(as_bytes=True), {"operation": call.operation}
            if kept is None:  # two processes that build it at once have the same
                made = _CACHE.put_first(key, made, about)
            else:
                _CACHE.put(key, made, about)
            if microseconds is not None:
                _CACHE.put(sha256_digest(key, "microseconds"), f"{microseconds:.3f}".encode(), {})
            return self._plan_of_bytes(made, call, microseconds)
        return CudnnPlan(graph, len(call.tensors), False, microseconds)

    def _build_fastest_plan(self, graph: Any, call: DnnCall, clock: TrialClock) -> float | None:
        """Of the plans that the heuristics name first the one that is the fastest by the clock; those that have to be
        compiled only where there are no others. Its microseconds; None where none could be timed."""
        times: dict[int, float] = {}
        end = time.perf_counter() + TRIAL_SECONDS
        sizes = [nbytes_of_dnn_tensor(t) for t in call.tensors]
        numbers = range(graph.get_execution_plan_count())
        compiled = {number for number in numbers if self._is_plan_compiled(graph, number)}
        for number in sorted(numbers, key=compiled.__contains__):
            if times and (len(times) == TRIED or number in compiled or time.perf_counter() > end):
                break
            with suppress(Exception):  # one that was ruled out, or that this GPU does not have
                graph.build_plan_at_index(number)
                workspace = int(graph.get_workspace_size_plan_at_index(number))
                took = clock.microseconds([*sizes, workspace], partial(self._enqueue_plan, graph, number))
                times |= {} if took is None else {number: took}
        if not times:
            return None
        fastest = min(times, key=lambda number: times[number])
        graph.build_plan_at_index(fastest)
        return times[fastest]

    def _is_plan_compiled(self, graph: Any, number: int) -> bool:
        """Whether building it takes a compiler, and half a second."""
        with suppress(Exception):
            notes = graph.get_behavior_notes_for_plan_at_index(number) or ()
            return self._frontend.behavior_note.RUNTIME_COMPILATION in notes
        return False

    def _enqueue_plan(self, graph: Any, number: int, addresses: Sequence[int], stream: int) -> None:
        """One of a graph's plans, of arrays and a workspace at these addresses."""
        *arrays, workspace = addresses
        self._frontend.set_stream(self._handle, stream)
        graph.execute_plan_at_index(dict(enumerate(arrays, 1)), workspace, number, handle=self._handle)

    def _plan_of_bytes(self, kept: bytes, call: DnnCall, microseconds: float | None) -> CudnnPlan:
        graph = self._frontend.pygraph(handle=self._handle)
        graph.deserialize(self._handle, kept)
        return CudnnPlan(graph, len(call.tensors), True, microseconds)


def _let_go_of_plans(plans: Iterable[CudnnPlan]) -> None:
    """The frontend complains of what is left of it at the end of a process."""
    for plan in list(plans):
        plan.let_go()


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]


@functools.cache
def _frontend_version() -> str:
    try:
        return metadata.version(PACKAGE)
    except metadata.PackageNotFoundError:
        return "?"


@functools.cache
def library_of_cudnn() -> str:
    """The library that PyTorch, JAX or a package of NVIDIA's brought; empty where there is none but the system's."""
    try:
        found = util.find_spec("nvidia")
    except (ImportError, ValueError):
        return ""
    folders = found.submodule_search_locations or () if found else ()
    paths = (os.path.join(folder, "cudnn", "lib", LIBRARY) for folder in folders)
    return next(filter(os.path.exists, paths), "")


def load_cudnn_frontend() -> Any:
    """The package, with the library loaded that it looks for by its name where it knows no path."""
    logging.getLogger("cudnn").addHandler(logging.NullHandler())  # refusals are reasons here, no warnings
    if path := library_of_cudnn():
        ctypes.CDLL(path, ctypes.RTLD_GLOBAL)
    return import_module("cudnn")


def cudnn_of_gpu(
    gpu: str, enter: Callable[[], object], memory_info: Callable[[], tuple[int, int] | None]
) -> Cudnn | None:
    """What the GPU of this name does by cuDNN; None without the package."""
    return Cudnn(gpu, enter, load_cudnn_frontend, memory_info) if util.find_spec("cudnn") is not None else None


# descriptions


def describe_cudnn_graph(frontend: Any, handle: Any, call: DnnCall) -> Any:
    """The frontend's graph of a call; its arrays are numbered from 1."""
    kinds = {name: getattr(frontend.data_type, kind) for name, kind in DTYPES.items()}
    graph = frontend.pygraph(
        io_data_type=kinds[call.tensors[0].dtype],
        intermediate_data_type=frontend.data_type.FLOAT,
        compute_data_type=frontend.data_type.FLOAT,
        handle=handle,
    )
    reads, describe = _OPERATIONS[call.operation]
    reads += bool(call.option("bias"))
    given = [
        graph.tensor(dim=list(t.shape), stride=list(t.strides), data_type=kinds[t.dtype], uid=number)
        for number, t in enumerate(call.tensors[:reads], 1)
    ]
    results = zip(describe(frontend, graph, given, call), call.tensors[reads:], strict=True)
    for number, (made, t) in enumerate(results, reads + 1):
        made.set_output(True).set_dim(list(t.shape)).set_stride(list(t.strides))
        made.set_data_type(kinds[t.dtype]).set_uid(number)
    return graph


Describe = Callable[[Any, Any, Sequence[Any], DnnCall], list[Any]]  # frontend, graph, what is read -> what is written


def _describe_convolution(method: str, first: str, second: str) -> Describe:
    def describe(frontend: Any, graph: Any, given: Sequence[Any], call: DnnCall) -> list[Any]:
        before, after = zip(*call.option("padding"), strict=True)
        window = {
            "pre_padding": list(before),
            "post_padding": list(after),
            "stride": list(call.option("stride")),
            "dilation": list(call.option("dilation")),
        }
        found = getattr(graph, method)(**{first: given[0], second: given[1]}, **window)
        found = graph.bias(input=found, bias=given[2]) if call.option("bias") else found
        return [graph.relu(input=found) if call.option("relu") else found]

    return describe


def _describe_attention(frontend: Any, graph: Any, given: Sequence[Any], call: DnnCall) -> list[Any]:
    scores = _scores_of_attention(frontend, given[3:], call)
    result, stats = graph.sdpa(*given[:3], generate_stats=call.option("stats"), **scores)
    return [result, stats] if call.option("stats") else [result]


def _describe_attention_gradient(frontend: Any, graph: Any, given: Sequence[Any], call: DnnCall) -> list[Any]:
    return list(graph.sdpa_backward(*given[:6], **_scores_of_attention(frontend, given[6:], call)))


def _scores_of_attention(frontend: Any, bias: Sequence[Any], call: DnnCall) -> dict[str, Any]:
    bound = call.option("bound")
    added = {"bias": bias[0]} if bias else {}
    band = {} if bound is None else {"diagonal_band_right_bound": bound}
    aligned = {"diagonal_alignment": frontend.diagonal_alignment.TOP_LEFT}
    return {"attn_scale": call.option("scale"), **aligned, **band, **added}


# by the operation: how many arrays it reads, a bias of scores aside, and what adds it to a graph
_OPERATIONS: dict[str, tuple[int, Describe]] = {
    "convolution": (2, _describe_convolution("conv_fprop", "image", "weight")),
    "convolution_image": (2, _describe_convolution("conv_dgrad", "loss", "filter")),
    "convolution_weights": (2, _describe_convolution("conv_wgrad", "image", "loss")),
    "attention": (3, _describe_attention),
    "attention_gradient": (6, _describe_attention_gradient),
}


# steps


class CudnnStep:
    """A call of cuDNN's."""

    numbers = empty = False

    def __init__(self, library: Cudnn, plan: CudnnPlan, starts: Sequence[int], regions: Sequence[Region]) -> None:
        """regions: of arrays, and of the workspace if there is one. starts: of each array in its region, in bytes."""
        self._library, self._plan, self._count = library, plan, len(starts)
        beyond = [*starts, *[0] * (len(regions) - len(starts))]
        self._places = [(r.buffer, r.offset + start) for r, start in zip(regions, beyond, strict=True)]
        self.buffers = frozenset(buffer for buffer, _ in self._places)

    def __call__(self, addresses: Sequence[int], scalars: Sequence[Any], stream: int) -> int:
        found = [addresses[buffer] + offset for buffer, offset in self._places]
        self._library.run(self._plan, found[: self._count], sum(found[self._count :]), stream)
        return SUCCESS


def make_cudnn_step(
    driver: CudaDriver, blas: Any, task: Task, name: str, options: Mapping[str, Any]
) -> CudnnStep | None:
    """The step of a task with these options; None where cuDNN, as it is here, refuses or wants more."""
    regions = [*task.reads, *task.writes]
    arrays = regions[: len(options["orders"])]
    call = dnn_call_of_arrays([(r.shape, r.dtype) for r in arrays], dict(options))
    library: Cudnn | None = blas.dnn
    plan = "" if library is None else library.plan(call)
    if library is None or isinstance(plan, str) or plan.workspace > options["workspace"]:
        return None
    parts = zip(parts_of_dnn_arrays(options), arrays, strict=True)
    return CudnnStep(library, plan, [part[2] * r.itemsize if part else 0 for part, r in parts], regions)
