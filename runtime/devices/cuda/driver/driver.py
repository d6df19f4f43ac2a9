"""The driver calls of the hot path. Handles and addresses in as integers, result codes out.

They go through `native_driver_calls`, or where that is not to be had through ctypes, which costs the host 0.3 us more a
call.

What happens once (contexts, streams) goes through cuda-core; see `driver.context.py`. Graphs are captured, and kernels
loaded and unloaded: the functions for that are here too.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from ctypes import addressof, byref, c_char_p, c_float, c_int, c_size_t, c_uint, c_ulonglong, c_void_p
from typing import Any

from .native_calls import native_driver_calls

SUCCESS, OUT_OF_MEMORY, NOT_READY = 0, 2, 600
CAPTURING = 1
EXTRA_BLOCK, EXTRA_SIZE = 1, 2  # CU_LAUNCH_PARAM_BUFFER_POINTER, CU_LAUNCH_PARAM_BUFFER_SIZE
IF, WHILE = 0, 1  # kinds of conditional nodes
CONDITIONALS = (12, 4)  # the first CUDA version whose driver nests conditional nodes, and tells a kernel's arguments
NO_DESTRUCTOR_SYNC = MOVE = 1
MEMORY_TYPE, HOST_MEMORY = 2, 1
STACK_SIZE, LOCAL_BYTES = 0, 3  # CU_LIMIT_STACK_SIZE, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES
# What the driver takes at once for an executable graph is at most this and so much a node (H200: 2 MiB for some 20 of
# one node). What is more others have taken meanwhile.
EXECUTABLE_BYTES, NODE_BYTES = 4 << 20, 16 << 10
RELEASE_THRESHOLD, POOL_RESERVED, POOL_USED = 4, 5, 7  # CU_MEMPOOL_ATTR_RELEASE_THRESHOLD and others
CAPTURE_RELAXED = 2  # a capture that forbids other threads nothing
LOST = frozenset({214, 219, 220, 700, 702, 709, 710, 713, 714, 715, 716, 717, 718, 719})  # the context is unusable


class LaunchConfig(ctypes.Structure):
    """CUlaunchConfig of cuda.h."""

    _fields_ = (
        *((name, c_uint) for name in ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "shared_bytes")),
        ("stream", c_void_p),
        ("attributes", c_void_p),
        ("attribute_count", c_uint),
    )


class KernelNode(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS_v2 of cuda.h."""

    _fields_ = (
        ("function", c_void_p),
        *((name, c_uint) for name in ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "shared_bytes")),
        *((name, c_void_p) for name in ("parameters", "extra", "kernel", "context")),
    )


class MemsetNode(ctypes.Structure):
    """CUDA_MEMSET_NODE_PARAMS_v1 of cuda.h."""

    _fields_ = (
        *(("target", c_ulonglong), ("pitch", c_size_t), ("value", c_uint), ("itemsize", c_uint)),
        *(("width", c_size_t), ("height", c_size_t)),
    )


class ConditionalNode(ctypes.Structure):
    """CUgraphNodeParams of cuda.h, of a conditional node: its union is 29 words."""

    _fields_ = (
        *(("type", c_int), ("reserved", c_int * 3), ("handle", c_ulonglong), ("kind", c_int), ("size", c_uint)),
        *(("bodies", ctypes.POINTER(c_void_p)), ("context", c_void_p), ("rest", c_ulonglong * 26)),
    )
    TYPE = 13


# The driver's functions by what they are called here, with a letter for each parameter, as of `_LETTERS`. Those of the
# hot path, during which other Python threads run:
LONG = {
    "launch": ("cuLaunchKernelEx", "pppp"),  # config, kernel, parameters, None
    "wait": ("cuStreamWaitEvent", "ppu"),  # stream, event, 0
    "synchronize_event": ("cuEventSynchronize", "p"),
    "synchronize_stream": ("cuStreamSynchronize", "p"),
    "to_device": ("cuMemcpyHtoDAsync_v2", "ppzp"),  # to, from, n, stream
    "to_host": ("cuMemcpyDtoHAsync_v2", "ppzp"),
    "on_device": ("cuMemcpyDtoDAsync_v2", "ppzp"),
    "fill": ("cuMemsetD8Async", "puzp"),  # to, byte, n, stream
    "begin_capture": ("cuStreamBeginCapture_v2", "pi"),  # stream, mode
    "launch_graph": ("cuGraphLaunch", "pp"),  # executable graph, stream
    "destroy_executable": ("cuGraphExecDestroy", "p"),
    "destroy_graph": ("cuGraphDestroy", "p"),
}
# that are over before another thread could do anything:
SHORT = {
    "record": ("cuEventRecord", "pp"),  # event, stream
    "query": ("cuEventQuery", "p"),
    "query_stream": ("cuStreamQuery", "p"),
    "update_kernel": ("cuGraphExecKernelNodeSetParams_v2", "ppp"),
    "update_event": ("cuGraphExecEventRecordNodeSetEvent", "ppp"),
}
# and those that are called seldom, or of more parameters than native calls take.
SELDOM = {
    "_capturing": ("cuStreamIsCapturing", "pp"),
    "to_peer": ("cuMemcpyPeerAsync", "ppppzp"),  # to, its context, from, its context, n, stream
    "_user_object": ("cuUserObjectCreate", "pppuu"),
    "_retain": ("cuGraphRetainUserObject", "ppuu"),
    "_exchange_mode": ("cuThreadExchangeStreamCaptureMode", "p"),
    "_pointer_attributes": ("cuPointerGetAttributes", "uppp"),
    "_end_capture": ("cuStreamEndCapture", "pp"),
    "_capture_info": ("cuStreamGetCaptureInfo_v2", "pppppp"),
    "_instantiate": ("cuGraphInstantiateWithFlags", "ppq"),
    "_nodes": ("cuGraphGetNodes", "ppp"),
    "_add_event": ("cuGraphAddEventRecordNode", "pppzp"),
    "_create_event": ("cuEventCreate", "pu"),
    "_load_library": ("cuLibraryLoadData", "ppppuppu"),
    "_kernel_of": ("cuLibraryGetKernel", "pps"),
    "_function_of": ("cuKernelGetFunction", "pp"),
    "unload_library": ("cuLibraryUnload", "p"),
    "_elapsed": ("cuEventElapsedTime", "ppp"),
    "_context": ("cuCtxGetCurrent", "p"),
    "_count": ("cuDeviceGetCount", "p"),
    "_name": ("cuGetErrorName", "ip"),
    "_text": ("cuGetErrorString", "ip"),
    "_memory_info": ("cuMemGetInfo_v2", "pp"),
    "trim_pool": ("cuMemPoolTrimTo", "pz"),  # pool, bytes to keep
    "_set_pool_attribute": ("cuMemPoolSetAttribute", "pip"),
    "_pool_attribute": ("cuMemPoolGetAttribute", "pip"),
    "_function_attribute": ("cuFuncGetAttribute", "pip"),
    "_get_limit": ("cuCtxGetLimit", "pi"),
    "_set_limit": ("cuCtxSetLimit", "iz"),
    "_version": ("cuDriverGetVersion", "p"),
    # of a driver that has `conditionals`
    "_handle": ("cuGraphConditionalHandleCreate", "pppuu"),
    "_add_node": ("cuGraphAddNode", "pppzp"),
    "_follow": ("cuStreamUpdateCaptureDependencies", "ppzu"),
    "_capture_into": ("cuStreamBeginCaptureToGraph", "ppppzi"),
    "_kernel_node": ("cuGraphKernelNodeGetParams_v2", "pp"),
    "_memset_node": ("cuGraphMemsetNodeGetParams", "pp"),
    "_function_argument": ("cuFuncGetParamInfo", "pzpp"),
    "_kernel_argument": ("cuKernelGetParamInfo", "pzpp"),
}
_LETTERS = {"p": c_void_p, "z": c_size_t, "i": c_int, "u": c_uint, "q": c_ulonglong, "s": c_char_p}


class CudaDriver:
    """libcuda, whose functions are attributes, each found when it is first asked for. Raises OSError where it is not
    there."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
        calls = native_driver_calls()
        # stream -> 0 for no; or a result code
        self.is_capturing = (calls.make_status_function if calls else _ctypes_driver_status_function)(self._capturing)
        self.executable_bytes = 0  # of the GPU, that the driver was seen to take for executable graphs: it keeps them
        self.conditionals = self.version() >= CONDITIONALS

    def __getattr__(self, name: str) -> Any:
        row = (LONG | SHORT | SELDOM).get(name)
        if row is None:
            raise AttributeError(name)
        found: Any = getattr(self._library, row[0])
        found.argtypes, found.restype = [_LETTERS[letter] for letter in row[1]], c_int
        calls = None if name in SELDOM else native_driver_calls()
        if calls is not None:
            found = calls.function(found, name in LONG)
        setattr(self, name, found)
        return found

    def address(self, name: str) -> int:
        """Where the driver's function of this name is."""
        return ctypes.cast(getattr(self._library, name), c_void_p).value or 0

    def device_count(self) -> int:
        """How many GPUs this process sees."""
        count = c_int()
        self._count(byref(count))
        return count.value

    def current_context(self) -> int:
        """The context that is current in this thread."""
        context = c_void_p()
        self._context(byref(context))
        return context.value or 0

    def end_capture(self, stream: int) -> tuple[int, int]:
        """Result code and graph."""
        graph = c_void_p()
        return self._end_capture(stream, byref(graph)), graph.value or 0

    def captured_node(self, stream: int) -> tuple[int, int]:
        """Result code and the node that was captured last on a stream."""
        status, number, graph, count = c_int(), c_ulonglong(), c_void_p(), c_size_t()
        nodes = c_void_p()
        code = self._capture_info(stream, *(byref(x) for x in (status, number, graph, nodes, count)))
        if code != SUCCESS or count.value != 1 or not nodes.value:
            return code or NOT_READY, 0
        return SUCCESS, c_void_p.from_address(nodes.value).value or 0

    def captured_nodes(self, stream: int) -> list[int]:
        """All nodes of the graph that a stream is captured into; empty where the driver does not say."""
        (_, graph), count = self.captures(stream), c_size_t()
        if self._nodes(graph, None, byref(count)) or not count.value:
            return []
        nodes = (c_void_p * count.value)()
        return [] if self._nodes(graph, nodes, byref(count)) else [node or 0 for node in nodes]

    def launch_of_node(self, node: int) -> tuple[bytes, tuple[bytes, ...]] | None:
        """Of a node that launches a kernel its `KernelNode`, without addresses, and the kernel's arguments (all as one
        block where `extra` is set); of one that fills memory what it does, and none. None where that is not known."""
        launch, fill = KernelNode(), MemsetNode()
        if not self.conditionals or self._kernel_node(node, byref(launch)):
            filled = self.conditionals and self._memset_node(node, byref(fill)) == SUCCESS
            return (bytes(fill), ()) if filled else None
        ask, of = self._function_argument, launch.function
        if not of:
            ask, of = self._kernel_argument, launch.kernel
        at, nbytes, sizes = c_size_t(), c_size_t(), list[int]()
        while ask(of, len(sizes), byref(at), byref(nbytes)) == SUCCESS:
            sizes.append(nbytes.value)
        if launch.extra:
            given: tuple[bytes, ...] = (_block_of_extra_arguments(launch.extra),)
        elif sizes and launch.parameters:
            places = (c_void_p * len(sizes)).from_address(launch.parameters)
            given = tuple(ctypes.string_at(place, n) for place, n in zip(places, sizes, strict=True))
        else:
            return None
        launch.parameters, launch.extra = None, bool(launch.extra)
        return bytes(launch), given

    def captures(self, stream: int) -> tuple[int, int]:
        """Result code and the graph that a stream is captured into; 0 for none."""
        status, number, graph = c_int(), c_ulonglong(), c_void_p()
        code = self._capture_info(stream, byref(status), byref(number), byref(graph), None, None)
        return code, (graph.value or 0) if code == SUCCESS and status.value == CAPTURING else 0

    def capture_into(self, stream: int, graph: int) -> int:
        """Begin a capture that adds to a graph."""
        return int(self._capture_into(stream, graph, None, None, 0, CAPTURE_RELAXED))

    def conditional_handle(self, stream: int) -> tuple[int, int]:
        """Result code and what the condition of a node of the captured graph is set by; 0 at each launch."""
        code, graph = self.captures(stream)
        context, made = c_void_p(), c_ulonglong()
        code = code or self._context(byref(context))
        return code or self._handle(byref(made), graph, context, 0, 1), made.value

    def add_conditional(self, stream: int, handle: int, kind: int) -> tuple[int, int]:
        """Result code and the graph to be filled of a node that comes next on a captured stream. kind: IF, WHILE."""
        status, number, graph, count = c_int(), c_ulonglong(), c_void_p(), c_size_t()
        nodes, context, made = c_void_p(), c_void_p(), c_void_p()
        code = self._capture_info(stream, *(byref(x) for x in (status, number, graph, nodes, count)))
        code = code or self._context(byref(context))
        given = ConditionalNode(type=ConditionalNode.TYPE, handle=handle, kind=kind, size=1, context=context.value)
        code = code or self._add_node(byref(made), graph, nodes, count, byref(given))
        if code or (code := self._follow(stream, byref(made), 1, 1)):
            return int(code), 0
        return SUCCESS, given.bodies[0] or 0

    def exchange_capture_mode(self, mode: int) -> int:
        """What this thread may do while somebody captures; the mode before."""
        found = c_int(mode)
        self._exchange_mode(byref(found))
        return found.value

    def on_graph_destroyed(self, graph: int, argument: int, function: int) -> int:
        """Result code; `function(argument)`, of C, is called when nothing of the graph is left."""
        made = c_void_p()
        code = self._user_object(byref(made), argument, function, 1, NO_DESTRUCTOR_SYNC)
        return int(code or self._retain(graph, made, 1, MOVE))

    def is_pinned(self, address: int) -> bool:
        """Whether host memory is page-locked."""
        found, wanted = c_uint(0), c_int(MEMORY_TYPE)  # for other memory, the singular of this function fails
        places = (c_void_p * 1)(addressof(found))
        code = self._pointer_attributes(1, byref(wanted), byref(places), address)
        return code == SUCCESS and found.value == HOST_MEMORY

    def add_event(self, graph: int, follows: int, event: int) -> tuple[int, int]:
        """Result code and a new node that records an event after another node."""
        made, before = c_void_p(), c_void_p(follows)
        return self._add_event(byref(made), graph, byref(before), 1, event), made.value or 0

    def instantiate(self, graph: int) -> tuple[int, int]:
        """Result code and executable graph."""
        made, nodes = c_void_p(), c_size_t()
        self._nodes(graph, None, byref(nodes))
        code, taken = bytes_taken_by(self.memory_info, lambda: self._instantiate(byref(made), graph, 0))
        if taken <= EXECUTABLE_BYTES + NODE_BYTES * nodes.value:
            self.executable_bytes += taken
        return code, made.value or 0

    def create_event(self, flags: int) -> tuple[int, int]:
        """Result code and event."""
        made = c_void_p()
        return self._create_event(byref(made), flags), made.value or 0

    def load_library(self, code: bytes) -> tuple[int, int]:
        """Result code and the library that machine code becomes, of which the driver makes a copy."""
        found = c_void_p()
        return self._load_library(byref(found), code, None, None, 0, None, None, 0), found.value or 0

    def function_of(self, library: int, name: str) -> tuple[int, int]:
        """Result code and a kernel of a library as a function of the current context, which is quicker to launch."""
        kernel, found = c_void_p(), c_void_p()
        code = self._kernel_of(byref(kernel), library, name.encode())
        return code or self._function_of(byref(found), kernel), found.value or 0

    def elapsed(self, start: int, end: int) -> tuple[int, float]:
        """Result code and the microseconds between two events with timing, both of which have happened."""
        found = c_float()
        return self._elapsed(byref(found), start, end), found.value * 1e3

    def memory_info(self) -> tuple[int, int] | None:
        """Bytes of the current context's GPU that are free, and all; None where the driver does not say."""
        free, every = c_size_t(), c_size_t()
        return None if self._memory_info(byref(free), byref(every)) else (free.value, every.value)

    def local_bytes(self, function: int) -> int:
        """Bytes of its own that each thread of a kernel has in the GPU's memory."""
        found = c_int()
        self._function_attribute(byref(found), LOCAL_BYTES, function)
        return found.value

    def stack_size(self) -> int:
        """Bytes that the driver has for each thread of the current context: as many as a launch so far has needed."""
        found = c_size_t()
        self._get_limit(byref(found), STACK_SIZE)
        return found.value

    def set_stack_size(self, nbytes: int) -> int:
        """Result code. Launches that need more get it anew."""
        return int(self._set_limit(STACK_SIZE, nbytes))

    def free_bytes_of_pool(self, pool: int) -> int:
        """Bytes that a pool of the driver's has of the GPU and has given to nobody; 0 where the driver does not say."""
        reserved, used = c_ulonglong(), c_ulonglong()
        failed = any(
            self._pool_attribute(pool, which, byref(found))
            for which, found in ((POOL_RESERVED, reserved), (POOL_USED, used))
        )
        return 0 if failed else reserved.value - used.value

    def set_release_threshold(self, pool: int, nbytes: int) -> int:
        """Result code. How much free memory a pool keeps when the driver next waits for something."""
        return int(self._set_pool_attribute(pool, RELEASE_THRESHOLD, byref(c_ulonglong(nbytes))))

    def version(self) -> tuple[int, int]:
        """The newest CUDA version that the driver knows, such as (13, 0)."""
        found = c_int(0)
        self._version(byref(found))
        return found.value // 1000, found.value % 1000 // 10

    def describe(self, code: int) -> str:
        """A result code in words."""
        words = []
        for function in (self._name, self._text):
            found = c_char_p()
            if function(code, byref(found)) == SUCCESS and found.value:
                words.append(found.value.decode())
        return ": ".join(words) or f"CUDA error {code}"


def bytes_taken_by(memory_info: Callable[[], tuple[int, int] | None], act: Callable[[], Any]) -> tuple[Any, int]:
    """What `act` gives, and about what that takes of the GPU's memory: others may take and give some meanwhile."""
    before = memory_info()
    found = act()
    after = memory_info()
    return found, 0 if before is None or after is None else max(0, before[0] - after[0])


def _block_of_extra_arguments(extra: int) -> bytes:
    """The arguments of a launch that has them in one block."""
    found = dict[int, int]()
    while key := c_void_p.from_address(extra).value:
        found[key] = c_void_p.from_address(extra + 8).value or 0
        extra += 16
    return ctypes.string_at(found[EXTRA_BLOCK], c_size_t.from_address(found[EXTRA_SIZE]).value)


def _ctypes_driver_status_function(function: Any) -> Any:
    """As `NativeDriverCalls.make_status_function`, by ctypes."""

    def read_driver_status(handle: int) -> int:
        answer = c_int(0)
        return int(function(handle, byref(answer)) or answer.value)

    return read_driver_status
