"""What a process pays until the first result: imports, a first call from the disk cache, a first call that compiles.

    python benchmarks/start.py [--device cpu|cuda] [--rounds 9]

Each line is the median of processes of its own, elapsed and of the processor, and what it adds to the line
that it builds on: NumPy, and on a GPU also a context of the driver's with a first allocation. Then: which heavy
libraries a warm process loaded; the parts of a warm first call (see `start_parts.py`); what compiling one of the
benchmarks' kernels takes (CUDA: for sm_90), and all of them in one call.
"""

# ruff: noqa: E402
from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from common import machine

DRIVER = """
import ctypes, numpy
cuda = ctypes.CDLL("libcuda.so.1")
context, memory = ctypes.c_void_p(), ctypes.c_uint64()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(memory), 1 << 20) == 0
assert cuda.cuCtxSynchronize() == 0
"""
CALL = """
import sys
import numpy as np
import kernelgraph as kg
f = kg.kernel_graph(device={device!r})(lambda x: np.exp(-(x * x)) * np.sin(x) + 0.3 * x)
x = np.linspace(0, 1, 1000, dtype=np.float32)
assert np.allclose(np.asarray(f(x)), np.exp(-(x * x)) * np.sin(x) + np.float32(0.3) * x, rtol=1e-5)
"""
LOADED = """
print(*sorted({n for n in ("numba", "llvmlite", "nvmath", "cuda.core", "matplotlib", "scipy") if n in sys.modules}))
try:
    maps = open("/proc/self/maps").read()
except OSError:
    maps = ""
print(*sorted({n for n in ("libcublas", "libcublasLt", "libnvJitLink", "libnvvm", "libcudart") if n in maps}))
"""


def seconds(code: str, environment: dict[str, str], rounds: int) -> tuple[float, float]:
    """The medians over processes: elapsed, and of the processor."""
    elapsed, worked = [], []
    for _ in range(rounds):
        before, start = _worked(), time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True, env=environment)
        elapsed.append(time.perf_counter() - start)
        worked.append(_worked() - before)
    return statistics.median(elapsed), statistics.median(worked)


def _worked() -> float:
    """Seconds of the processor that finished processes of this one took."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def parts(device: str, environment: dict[str, str], rounds: int) -> list[tuple[str, float]]:
    """The medians over processes of what `start_parts.py` prints."""
    found: dict[str, list[float]] = {}
    for _ in range(rounds):
        command = [sys.executable, str(HERE / "start_parts.py"), device]
        done = subprocess.run(command, check=True, env=environment, capture_output=True, text=True)
        for line in done.stdout.splitlines():
            name, _, took = line.partition("\t")
            found.setdefault(name, []).append(float(took))
    return [(name, statistics.median(took)) for name, took in found.items()]


def compile_times(device: str) -> tuple[list[float], list[float], float]:
    """Of the kernels of the benchmarks' workloads, not cached: each, elapsed and of the processor; all in one call."""
    import numpy as np
    from cpu_workloads import WORKLOADS, words

    import kernelgraph as kg
    from kernelgraph.runtime.program.program import Kernel

    os.environ["CUDA_CACHE_DISABLE"] = "1"
    if device == "cpu":
        from kernelgraph.runtime.codegen.llvm_jit import compile_llvm_ir_in_parallel, compile_llvm_ir_to_object_file

        def compiled(kernel: Kernel) -> None:
            compile_llvm_ir_to_object_file(kernel.source)

        def together(kernels: list[Kernel]) -> None:
            with kg.override(cache_dir=""):
                compile_llvm_ir_in_parallel([(k.source, lambda k=k: k.source, k.name) for k in kernels])
    else:
        from kernelgraph.runtime.devices.cuda.compile.compile import compile_cubin, compile_cubins

        def compiled(kernel: Kernel) -> None:
            compile_cubin(kernel, (9, 0))

        def together(kernels: list[Kernel]) -> None:
            with kg.override(cache_dir=""):
                compile_cubins(kernels, (9, 0))

    kernels: dict[Kernel, None] = {}
    m = words(np, kg.erf)
    for work in WORKLOADS:
        arrays = work.arrays(16)
        function = kg.kernel_graph(device=device)(lambda *a, work=work: work.body(m, *a))
        program = function.program(*arrays)
        kernels.update((task.kernel, None) for task in program.tasks if isinstance(task.kernel, Kernel))
    compiled(next(iter(kernels)))  # the compiler's own start
    elapsed, worked = [], []
    for kernel in kernels:
        start, before = time.perf_counter(), time.process_time()
        compiled(kernel)
        elapsed.append(time.perf_counter() - start)
        worked.append(time.process_time() - before)
    start = time.perf_counter()
    together(list(kernels))
    return elapsed, worked, time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    print(machine(None, ("numpy", "numba", "llvmlite", "numba-cuda", "cuda-core")) + "\n")
    call = CALL.format(device=options.device)
    with tempfile.TemporaryDirectory() as folder:
        paths = [str(HERE.parent / "src"), os.environ.get("PYTHONPATH", "")]
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"} | {
            "KERNELGRAPH_CACHE_DIR": f"{folder}/cache",
            "PYTHONPYCACHEPREFIX": f"{folder}/bytecode",
            "CUDA_CACHE_DISABLE": "1",  # the driver's own, of linked code
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        }
        subprocess.run([sys.executable, "-c", call], check=True, env=environment)
        rows = [("import numpy", "import numpy", None), ("import kernelgraph", "import kernelgraph", 0)]
        base = 0
        if options.device == "cuda":
            base = len(rows)
            rows.append(("numpy and the driver", DRIVER, None))
        rows.append(("first call, from the disk cache", call, base))
        found = [seconds(code, environment, options.rounds) for _, code, _ in rows]
        rows.append(("first call, compiled", call, base))
        found.append(seconds(call, {**environment, "KERNELGRAPH_CACHE_DIR": ""}, max(1, options.rounds // 3)))
        print("| | s | more | processor s | more |\n|---|--:|--:|--:|--:|")
        for (name, _, over), taken in zip(rows, found, strict=True):
            cells = [
                f"{t:.3f} | {t - found[over][k]:.3f}" if over is not None else f"{t:.3f} | "
                for k, t in enumerate(taken)
            ]
            print(f"| {name} | {' | '.join(cells)} |")
        done = subprocess.run([sys.executable, "-c", call + LOADED], check=True, env=environment, capture_output=True)
        modules, libraries = [*done.stdout.decode().splitlines(), "", ""][:2]
        print(f"\nwarm, it imported: {modules or 'none of the compilers'}; it loaded: {libraries or 'none'}")
        print("\n| part | ms |\n|---|--:|")
        for name, took in parts(options.device, environment, options.rounds):
            print(f"| {name} | {took * 1e3:.1f} |")
    elapsed, worked, together = compile_times(options.device)
    each, busy, least, most, one_by_one = (
        f"{1e3 * seconds:.0f} ms"
        for seconds in (statistics.median(elapsed), statistics.median(worked), min(elapsed), max(elapsed), sum(elapsed))
    )
    print(f"\ncompiling a kernel: median {each} ({busy} of the processor), {len(elapsed)} kernels, {least} to {most}")
    print(f"all of them: one by one {one_by_one}, in one call {1e3 * together:.0f} ms")


if __name__ == "__main__":
    main()
