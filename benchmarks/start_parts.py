"""The parts of a warm first call, each as a line: a name, a tab, seconds. `start.py` runs it.

    python benchmarks/start_parts.py cpu|cuda

All modules are imported before the call, so that they are a part of their own; a line with a dash is within the call.
"""

# ruff: noqa: E402
from __future__ import annotations

import importlib
import sys
import time
from typing import Any

begun = time.perf_counter()
import numpy as np

after = time.perf_counter()
print("import numpy", after - begun, sep="\t")
begun = after
import kernelgraph as kg

took: dict[str, float] = {}


def timed(module: str, kind: str, name: str, label: str) -> None:
    """Measure a function of a module, or of a class there."""
    owner: Any = importlib.import_module(f"kernelgraph.{module}")
    if kind:
        owner = getattr(owner, kind)
    function = getattr(owner, name)

    def measured(*given: Any, **options: Any) -> Any:
        start = time.perf_counter()
        try:
            return function(*given, **options)
        finally:
            took[label] = took.get(label, 0) + time.perf_counter() - start

    setattr(owner, name, measured)


device = sys.argv[1]
timed("dsl.jit.specializations", "", "trace_function", "trace")
timed("dsl.jit.specializations", "", "run_pipeline_stages", "fuse and lower")
timed("dsl.jit.specializations", "", "open_device", "open the device")
timed("dsl.jit.specializations", "CompiledProgram", "make_ready", "make ready: all that the device does before it runs")
if device == "cuda":
    timed("runtime.devices.cuda.driver.early_start", "", "_make_cuda_context", "the driver's start, in a thread")
    timed("runtime.devices.cuda.driver.context", "GpuDriverContext", "__init__", "open the device: context")
    timed("runtime.devices.cuda.driver.context", "", "import_module", "open the device: context: import cuda.core")
    timed("runtime.devices.cuda.driver.driver", "", "native_driver_calls", "open the device: context: native calls")
    timed("runtime.devices.cuda.device", "", "compile_cubins", "make ready: read from the disk cache")
    timed("runtime.devices.cuda.driver.context", "GpuDriverContext", "kernel", "make ready: modules loaded")
else:
    timed(
        "runtime.codegen.llvm_jit", "", "compile_llvm_ir_in_parallel", "make ready: read from the disk cache and loaded"
    )
importlib.import_module("kernelgraph.dsl.api.namespace")
print("import kernelgraph: all that the call needs", time.perf_counter() - begun, sep="\t")

f = kg.kernel_graph(device=device)(lambda x: np.exp(-(x * x)) * np.sin(x) + 0.3 * x)
x = np.linspace(0, 1, 1000, dtype=np.float32)
for call in ("first call", "second call"):
    begun = time.perf_counter()
    np.asarray(f(x))
    print(call, time.perf_counter() - begun, sep="\t")
    for label, seconds in took.items():
        print(f"- {label}", seconds, sep="\t")
    took.clear()
