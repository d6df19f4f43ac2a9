"""Kernel text in, machine code out, on any machine. numba.cuda makes PTX, nvJitLink a cubin. No GPU is needed.

The only file that knows the compiler: another one is swapped in here. `python -m` on it compiles kernels of a pipe.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib import import_module
from queue import Empty, SimpleQueue
from typing import Any

from ....codegen.numba_errors import explain_numba_error
from ....core.disk_cache import DiskCache, sha256_digest
from ....core.errors import CompileError
from ....core.frozen import replace
from ....core.gc_pause import paused_garbage_collection
from ....core.progress import progress_counter
from ....core.settings import allowed_cores
from ....program.program import Kernel
from ..modules.ptx_kernels import ptx_text_of_kernel
from .numba_parts import numba_cuda_package_version

FORMAT = 7  # of the cubins in the disk cache: what is compiled, and how, beyond text and versions
TEXT = 12 << 10  # of kernels, worth a process beside this one: it takes as long to start as to compile that
THREADS = 4  # that compile: half of the time is under numba's lock
_PACKAGES = ("numba-cuda", "numba", "llvmlite", "cuda-core", "nvidia-nvvm", "nvidia-nvjitlink")

RECENT_BYTES = 64 << 20  # of cubins that stay in memory: what was unloaded is loaded again without a compiler or a disk

_cache = DiskCache("cuda")
_recent: OrderedDict[str, bytes] = OrderedDict()  # by key, used longest ago first
_recent_lock = threading.Lock()


def compile_ptx(kernel: Kernel, cc: tuple[int, int]) -> str:
    """PTX for compute capability `cc`, e.g. (9, 0); its entry point has the kernel's name, and the form that its
    options say."""
    with paused_garbage_collection():
        entries: Any = import_module(".entries", __package__)
        return str(entries.ptx_of_kernel_entry(kernel, cc))


def _numba_cuda_allows_fastmath(kernel: Kernel) -> bool:
    return bool(dict(kernel.options).get("fastmath"))


def link_ptx_to_cubin(ptx: str, cc: tuple[int, int], fastmath: bool = False) -> bytes:
    """The machine code of PTX. A product and a sum are contracted into one rounding only under `fastmath`.

    nvJitLink heeds `fma=False` for link-time optimisation alone; for PTX, ptxas has to be told too.
    """
    ptx = negations_before_minima_as_complements(ptx)
    core: Any = import_module("cuda.core")
    strict = {} if fastmath else {"fma": False, "ptxas_options": ["--fmad=false"]}
    options = core.LinkerOptions(arch=f"sm_{cc[0]}{cc[1]}", **strict)
    linker = core.Linker(core.ObjectCode.from_ptx(ptx.encode()), options=options)
    try:
        return bytes(linker.link("cubin").code)
    finally:
        linker.close()


def negations_before_minima_as_complements(ptx: str) -> str:
    """Negations of small integers as complements plus one, in PTX that has minima or maxima of such.

    From CUDA 13.0 to 13.3 ptxas loses negations of what the smallest or largest of three is taken of, for sm_90."""
    if not any(f"{extreme}.s{bits}" in ptx for extreme in ("min", "max") for bits in (16, 32)):
        return ptx
    lines = []
    for line in ptx.splitlines():
        code, *operands = line.split() or [""]
        if code in ("neg.s16", "neg.s32"):
            bits, (result, value) = code[-2:], operands
            lines += [f"\tnot.b{bits} {result} {value}", f"\tadd.s{bits} {result} {result} 1;"]
        else:
            lines.append(line)
    return "\n".join(lines) + "\n"


def compile_cuda_source(text: str, cc: tuple[int, int]) -> bytes:
    """The machine code of CUDA C++."""
    core: Any = import_module("cuda.core")
    options = core.ProgramOptions(arch=f"sm_{cc[0]}{cc[1]}", fma=False)
    return bytes(core.Program(text, "c++", options).compile("cubin").code)


def compile_cubin(kernel: Kernel, cc: tuple[int, int]) -> bytes:
    """A cubin for compute capability `cc`. Raises CompileError."""
    options = dict(kernel.options)
    try:
        if options.get("own") == "c++":
            return compile_cuda_source(kernel.source, cc)
        ptx = ptx_text_of_kernel(kernel) if "ptx" in options else compile_ptx(kernel, cc)
        return link_ptx_to_cubin(ptx, cc, _numba_cuda_allows_fastmath(kernel))
    except CompileError:
        raise
    except Exception as error:
        if kernel.functions:
            found, names = (
                explain_numba_error(error, kernel.functions[0].source.file),
                " or ".join(f.source.name for f in kernel.functions),
            )
            place = f"{os.path.basename(found.file)}:{found.line}: " if found.line else ""
            raise CompileError(
                f"{place}{names} cannot be compiled for sm_{cc[0]}{cc[1]}: {found.reason}; "
                "write it with what numba.cuda supports, or run it on the CPU",
                kernel.name,
            ) from None
        why = f"kernel {kernel.name} does not compile for sm_{cc[0]}{cc[1]}: {error}"
        raise CompileError(why, kernel.name) from error


def versions_of_numba_cuda_packages(*other_packages: str) -> str:
    """Those of the packages that code depends on, and of others."""
    return ", ".join(f"{p} {numba_cuda_package_version(p)}" for p in (*_PACKAGES, *other_packages))


def cubin_cache_key(kernel: Kernel, cc: tuple[int, int]) -> str:
    """What a cubin depends on, as the disk cache's key."""
    functions = [(f.source.digest, f.arguments, f.results) for f in kernel.functions]
    return sha256_digest(
        FORMAT,
        kernel.source,
        kernel.name,
        kernel.signature,
        kernel.options,
        functions,
        cc,
        versions_of_numba_cuda_packages(),
    )


def compile_cubins(kernels: Sequence[Kernel], cc: tuple[int, int]) -> list[bytes]:
    """The kernels' machine code, from memory or the disk cache where they have it. A warm start imports no numba."""
    keys = [cubin_cache_key(k, cc) for k in kernels]
    found = [_recent.get(key) or _cache.get(key) for key in keys]
    missing = [i for i, code in enumerate(found) if code is None]
    for i, code in zip(missing, _compile_cubins_in_parallel([kernels[i] for i in missing], cc), strict=True):
        found[i] = code
        _cache.put(keys[i], code, {"kernel": kernels[i].name, "capability": list(cc)})
    codes = [code for code in found if code is not None]
    _keep_cubins_in_memory(dict(zip(keys, codes, strict=True)))
    return codes


def _keep_cubins_in_memory(codes: dict[str, bytes]) -> None:
    """Keep machine code in memory, in place of what was used longest ago."""
    with _recent_lock:
        for key, code in codes.items():
            _recent[key] = code
            _recent.move_to_end(key)
        while sum(map(len, _recent.values())) > RECENT_BYTES:
            _recent.popitem(last=False)


def _compile_cubins_in_parallel(kernels: Sequence[Kernel], cc: tuple[int, int]) -> list[bytes]:
    """In a few threads: numba has one lock, but what comes after it (NVVM, ptxas) has none. Of much text some goes to
    other processes too, which take a second to start: the longest kernel is compiled here."""
    codes: dict[int, bytes] = {}
    with progress_counter(len(kernels), "compiling kernels") as done:
        waiting: SimpleQueue[int] = SimpleQueue()
        for i in sorted(range(len(kernels)), key=lambda i: -len(kernels[i].source)):  # the longest first
            waiting.put(i)
        here = min(allowed_cores(), len(kernels), THREADS)
        others = min(allowed_cores(), max(0, sum(len(k.source) for k in kernels) // TEXT - 1))
        if here > 1:
            ways = [_compile_cubins_in_this_process] * here
            ways[1:1] = [_compile_cubins_in_helper_process] * others
            with ThreadPoolExecutor(here + others) as pool:
                for one in [pool.submit(way, kernels, cc, waiting, codes, done) for way in ways]:
                    one.result()
        for i in range(len(kernels)):  # where a process ended
            if i not in codes:
                waiting.put(i)
        _compile_cubins_in_this_process(kernels, cc, waiting, codes, done)
    return [codes[i] for i in range(len(kernels))]


def _compile_cubins_in_this_process(
    kernels: Sequence[Kernel],
    cc: tuple[int, int],
    waiting: SimpleQueue[int],
    codes: dict[int, bytes],
    done: Callable[[], None],
) -> None:
    """Compile one kernel after another of those waiting."""
    with suppress(Empty):
        while True:
            i = waiting.get_nowait()
            try:
                codes[i] = compile_cubin(kernels[i], cc)
            except BaseException:
                while not waiting.empty():  # nobody starts another
                    with suppress(Empty):
                        waiting.get_nowait()
                raise
            done()


def _compile_cubins_in_helper_process(
    kernels: Sequence[Kernel],
    cc: tuple[int, int],
    waiting: SimpleQueue[int],
    codes: dict[int, bytes],
    done: Callable[[], None],
) -> None:
    """Compile one kernel after another of those waiting, in another process; if that ends, the rest is left."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    command = [sys.executable, "-m", __name__]
    with (
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
        ) as child,
        suppress(Empty, OSError, EOFError, pickle.UnpicklingError),
    ):
        assert child.stdin is not None and child.stdout is not None
        while True:
            i = waiting.get_nowait()
            pickle.dump((replace(kernels[i], form=None), cc), child.stdin)
            child.stdin.flush()
            codes[i] = pickle.load(child.stdout)
            done()


def serve_cubin_compilations() -> None:
    """Kernels in through a pipe, machine code out, until the pipe is closed."""
    with suppress(EOFError):
        while True:
            kernel, cc = pickle.load(sys.stdin.buffer)
            pickle.dump(compile_cubin(kernel, cc), sys.stdout.buffer)
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    serve_cubin_compilations()
