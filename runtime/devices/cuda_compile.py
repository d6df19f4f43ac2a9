"""Kernel text in, machine code out, on any machine: numba.cuda to PTX, nvJitLink to a cubin. No GPU is needed.

The only file that knows the compiler: another one is swapped in here.
"""

from __future__ import annotations

from typing import Any

from ..program import Kernel


def compile_ptx(kernel: Kernel, cc: tuple[int, int]) -> str:
    """PTX for compute capability `cc`, e.g. (9, 0)."""
    from numba.cuda import compile_ptx, types

    from .cuda_intrinsics import resolve

    code = compile(kernel.source, f"<kernel {kernel.name}>", "exec")
    namespace: dict[str, Any] = {}
    exec(code, namespace)
    function = namespace[kernel.name]
    namespace.update({name: resolve(name) for name in function.__code__.co_names})
    parameters = tuple(_PARAMETERS(types, name) for name in kernel.signature)
    options = dict(kernel.options)
    ptx, _ = compile_ptx(
        function,
        types.void(*parameters),
        cc=cc,
        device=False,
        abi="numba",
        fastmath=bool(options.get("fastmath")),
        launch_bounds=options.get("threads"),
    )
    return str(ptx)


def _PARAMETERS(types: Any, name: str) -> Any:
    from .cuda_lanes import NUMBA

    special = {"ptr": types.uint64, "bool": types.boolean, "float16": types.uint16, "bfloat16": types.uint16}
    return special.get(name) or NUMBA.get(name) or getattr(types, name)


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
