"""Kernel text in, its function in LLVM IR out, which the entries of all forms of the kernel call."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from importlib import import_module
from typing import Any

from llvmlite import ir

from ....core.frozen import frozen
from ....program.program import Kernel
from .lanes import NUMBA
from .numba_parts import (
    add_ir_version,
    compile_cuda,
    compile_ir,
    global_compiler_lock,
    set_cuda_kernel,
    set_launch_bounds,
    types,
)
from .user_functions import numba_intrinsics_of_user_functions
from .vocabulary import resolve_name_in_kernel_text

# A kernel's signature names integers `i64` and scalars by NumPy's names.
_PARAMETERS = {"ptr": "u64", "i64": "i64", "bool": "b1", "bfloat16": "bf16", "float16": "f16", "float32": "f32"}
_PARAMETERS |= {"float64": "f64"} | {f"{k}int{n}": f"{k or 'i'}{n}" for k in ("", "u") for n in (8, 16, 32, 64)}


@frozen
class NumbaFunction:
    """A Python function in LLVM IR: its name and type, the text of the modules that have it, and how NVVM compiles
    these. machine: their triple and the layout of data."""

    name: str
    type: ir.FunctionType
    modules: tuple[str, ...]
    machine: tuple[str, str]
    nvvm_options: dict[str, Any]

    def entry_module(self) -> ir.Module:
        """An empty module, for an entry that calls the function."""
        module = ir.Module(self.name)
        module.triple, module.data_layout = self.machine
        add_ir_version(module)
        return module

    def ptx(self, entry: ir.Function, bounds: Any, cc: tuple[int, int]) -> str:
        """The PTX of an entry. bounds: threads of a block, and blocks of a multiprocessor."""
        set_cuda_kernel(entry)
        set_launch_bounds(entry, bounds)
        text = str(entry.module)
        for argument in entry.args:
            if "byval" in argument.attributes and cc < (10, 0):  # NVVM's older dialect has no type there
                text = text.replace(f"byval({argument.type.pointee})", "byval")
        made: bytes = compile_ir([text, *self.modules], **self.nvvm_options, arch=f"compute_{cc[0]}{cc[1]}")
        return made.decode().strip("\x00").strip() + "\n"


def _compile_numba_function(
    function: Any, parameters: Sequence[Any], cc: tuple[int, int], fastmath: bool, in_few_passes: bool
) -> NumbaFunction:
    """A function without a result, of which a product and a sum are contracted only under `fastmath`.

    in_few_passes: it calls no function of the user's."""
    made, options = None, {"fastmath": fastmath, "opt": 3}
    if in_few_passes:
        with suppress(ImportError, AttributeError, TypeError):  # another release of numba-cuda's, with other insides
            front_end: Any = import_module(".numba_front_end", __package__)
            made = front_end.compile_in_few_passes(function, tuple(parameters), cc, fastmath)
    if made is None:
        made = compile_cuda(
            function, types.void, tuple(parameters), fastmath=fastmath, nvvm_options=dict(options), cc=cc
        )
    found = made.library.get_function(made.fndesc.llvm_func_name)
    found.linkage = "linkonce_odr"  # it is gone once it is inlined
    found.attributes.discard("noinline")
    found.attributes.add("alwaysinline")
    for value in found.module.global_values:
        if "NumbaEnv" in value.name:  # what only Python would need; its name counts compilations
            value.linkage = "internal"
    machine = (found.module.triple, found.module.data_layout)
    modules = tuple(map(str, made.library.modules))
    return NumbaFunction(found.name, found.ftype, modules, machine, options | {"fma": fastmath})


@lru_cache(64)
def function_of_kernel_text(kernel: Kernel, cc: tuple[int, int]) -> tuple[NumbaFunction, Any]:
    """A kernel's function, and the bounds of its blocks; kept, since another form is likely to be asked for next."""
    options, namespace = dict(kernel.options), dict[str, Any]()
    exec(compile(kernel.source, f"<kernel {kernel.name}>", "exec"), namespace)
    function, fastmath = namespace[kernel.name], bool(options.get("fastmath"))
    with global_compiler_lock:
        own = numba_intrinsics_of_user_functions(kernel.functions, cc)
        for name in function.__code__.co_names:
            namespace[name] = own.get(name) or resolve_name_in_kernel_text(name, fastmath, options.get("packed", 0))
        parameters = [NUMBA[_PARAMETERS[name]] for name in kernel.signature]
        made = _compile_numba_function(function, parameters, cc, fastmath, not kernel.functions)
    return made, namespace["THREADS"]
