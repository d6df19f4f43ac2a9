"""Kernel text in, machine code out, on any machine: numba.cuda to PTX, nvJitLink to a cubin. No GPU is needed.

The only file that knows the compiler: another one is swapped in here.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ..program import Kernel


def compile_ptx(kernel: Kernel, cc: tuple[int, int]) -> str:
    """PTX for compute capability `cc`, e.g. (9, 0)."""
    numba_cuda: Any = import_module("numba.cuda")
    from .cuda_intrinsics import resolve
    from .cuda_lanes import NUMBA, types

    code = compile(kernel.source, f"<kernel {kernel.name}>", "exec")
    namespace: dict[str, Any] = {}
    exec(code, namespace)
    function = namespace[kernel.name]
    namespace.update({name: resolve(name) for name in function.__code__.co_names})
    parameters = (NUMBA[_PARAMETERS[name]] for name in kernel.signature)
    options = dict(kernel.options)
    ptx, _ = numba_cuda.compile_ptx(
        function,
        types.void(*parameters),
        cc=cc,
        device=False,
        abi="numba",
        fastmath=bool(options.get("fastmath")),
        launch_bounds=namespace["THREADS"],
    )
    return str(ptx)


# A kernel's signature names integers `i64` and scalars by NumPy's names.
_PARAMETERS = {"ptr": "u64", "i64": "i64", "bool": "b1", "bfloat16": "bf16", "float16": "f16", "float32": "f32"}
_PARAMETERS |= {"float64": "f64"} | {f"{k}int{n}": f"{k or 'i'}{n}" for k in ("", "u") for n in (8, 16, 32, 64)}


def link_cubin(ptx: str, cc: tuple[int, int], fastmath: bool = False) -> bytes:
    """The machine code of PTX. A product and a sum are contracted into one rounding only under `fastmath`."""
    from cuda.core import Linker, LinkerOptions, ObjectCode

    options = LinkerOptions(arch=f"sm_{cc[0]}{cc[1]}", fma=fastmath, optimization_level=3)
    linker = Linker(ObjectCode.from_ptx(ptx.encode()), options=options)
    try:
        return bytes(linker.link("cubin").code)
    finally:
        linker.close()


def compile_cuda(kernel: Kernel, cc: tuple[int, int]) -> bytes:
    """A cubin for compute capability `cc`; its only entry point is the kernel's."""
    return link_cubin(compile_ptx(kernel, cc), cc, bool(dict(kernel.options).get("fastmath")))
