"""All of numba.cuda that is used here, a row for each part, with what it is for. A part is imported on first use."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from ....core.errors import CompileError

# name -> the module, and what it is for
PARTS: dict[str, tuple[str, str]] = {
    "types": ("numba.cuda", "types of lanes and of kernels' parameters"),
    "jit": ("numba.cuda", "functions that a user's function calls"),
    "intrinsic": ("numba.cuda.extending", "words of kernel text"),
    "signature": ("numba.cuda.typing", "what a word takes and gives"),
    "AbstractTemplate": ("numba.cuda.typing.templates", "dual numbers: what functions of them give"),
    "infer_global": ("numba.cuda.typing.templates", "dual numbers: functions that they have"),
    "register_model": ("numba.cuda.extending", "dual numbers: how they lie in registers"),
    "models": ("numba.cuda.extending", "dual numbers: what that is made of"),
    "lower_cast": ("numba.cuda.extending", "dual numbers: conversions to them"),
    "lower_builtin": ("numba.cuda.extending", "dual numbers: code of functions of them"),
    "create_struct_proxy": ("numba.cuda.cgutils", "dual numbers: their two parts in LLVM IR"),
    "pack_array": ("numba.cuda.cgutils", "dual numbers: their changes in LLVM IR"),
    "Conversion": ("numba.cuda.typeconv", "dual numbers: from plain numbers"),
    "TypingError": ("numba.cuda.core.errors", "functions that dual numbers do not have"),
    "compile_cuda": ("numba.cuda.compiler", "Python functions to LLVM IR, by all passes"),
    "compile_extra": ("numba.cuda.compiler", "the same, by the passes that kernel text needs"),
    "CUDACompiler": ("numba.cuda.compiler", "what lists the passes"),
    "CUDAFlags": ("numba.cuda.compiler", "what kernel text is compiled with"),
    "CUDACallConv": ("numba.cuda.compiler", "how a kernel's function is called"),
    "global_compiler_lock": ("numba.cuda.compiler", "one thread compiles at a time"),
    "add_ir_version": ("numba.cuda.cudadrv.nvvm", "which LLVM IR a module is in"),
    "set_cuda_kernel": ("numba.cuda.cudadrv.nvvm", "what marks an entry"),
    "set_launch_bounds": ("numba.cuda.cudadrv.nvvm", "threads of an entry's blocks"),
    "compile_ir": ("numba.cuda.cudadrv.nvvm", "LLVM IR to PTX"),
    "cuda_target": ("numba.cuda.descriptor", "contexts of typing and lowering, to be shared"),
    "CUDATypingContext": ("numba.cuda.target", "what a call means, resolved once"),
    "OPERATORS_TO_BUILTINS": ("numba.cuda.utils", "operators, resolved once"),
    "PassManager": ("numba.cuda.core.compiler_machinery", "the passes that kernel text needs"),
    "target_override": ("numba.core.target_extension", "that words mean those of a GPU"),
}


class MissingPart(CompileError, ImportError):
    """numba.cuda is not there, or has no such part."""

    def __init__(self, why: str) -> None:
        super().__init__(f"CUDA kernels cannot be compiled: {why}")


def __getattr__(name: str) -> Any:
    if name not in PARTS:
        raise AttributeError(name)
    module, purpose = PARTS[name]
    try:
        _import_names_of_older_numpy()
        part = globals()[name] = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise MissingPart(_why_part_is_missing(f"{module}.{name}", purpose, error)) from error
    return part


def _import_names_of_older_numpy() -> None:
    """Has numba.cuda's arrays imported while NumPy has `row_stack`, which 2.5 removed and that one module names."""
    if hasattr(np, "row_stack"):
        return
    np.row_stack = np.vstack
    try:
        import_module("numba.cuda.np.arrayobj")
    finally:
        del np.row_stack


def _why_part_is_missing(name: str, purpose: str, error: Exception) -> str:
    """Why there is none, and what to install."""
    own = numba_cuda_package_version("numba-cuda")
    try:
        import_module("numba.cuda")
    except ImportError:
        return f"numba-cuda cannot be imported ({error}); run pip install '.[cuda]' in kernelgraph's folder"
    return f"numba-cuda {own} has no {name} (for {purpose}); run pip install '.[cuda]' in kernelgraph's folder"


def numba_cuda_package_version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"
