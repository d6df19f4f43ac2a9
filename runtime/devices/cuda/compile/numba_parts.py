"""All of numba.cuda that is used here, a row for each part, with what it is for. A part is imported on first use."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from ....core.errors import CompileError

# name -> the module, the attribute (none: the module itself), and what it is for
PARTS: dict[str, tuple[str, str, str]] = {
    "types": ("numba.cuda", "types", "types of lanes and of kernels' parameters"),
    "jit": ("numba.cuda", "jit", "functions that a user's function calls"),
    "intrinsic": ("numba.cuda.extending", "intrinsic", "words of kernel text"),
    "extending": ("numba.cuda.extending", "", "dual numbers: their model, operators and conversions"),
    "signature": ("numba.cuda.typing", "signature", "what a word takes and gives"),
    "templates": ("numba.cuda.typing.templates", "", "dual numbers: what functions of them give"),
    "cgutils": ("numba.cuda.cgutils", "", "dual numbers: their two parts in LLVM IR"),
    "Conversion": ("numba.cuda.typeconv", "Conversion", "dual numbers: from plain numbers"),
    "TypingError": ("numba.cuda.core.errors", "TypingError", "functions that dual numbers do not have"),
    "compiler": ("numba.cuda.compiler", "", "Python functions to LLVM IR, by all passes or by those needed"),
    "nvvm": ("numba.cuda.cudadrv.nvvm", "", "LLVM IR to PTX, and what marks an entry"),
    "descriptor": ("numba.cuda.descriptor", "cuda_target", "contexts of typing and lowering, to be shared"),
    "TypingContext": ("numba.cuda.target", "CUDATypingContext", "what a call means, resolved once"),
    "OPERATORS": ("numba.cuda.utils", "OPERATORS_TO_BUILTINS", "operators, resolved once"),
    "PassManager": ("numba.cuda.core.compiler_machinery", "PassManager", "the passes that kernel text needs"),
    "target": ("numba.core.target_extension", "target_override", "that words mean those of a GPU"),
}


class MissingPart(CompileError, ImportError):
    """numba.cuda is not there, or has no such part."""

    def __init__(self, why: str) -> None:
        super().__init__(f"CUDA kernels cannot be compiled: {why}")


def __getattr__(name: str) -> Any:
    if name not in PARTS:
        raise AttributeError(name)
    module, attribute, purpose = PARTS[name]
    try:
        _import_names_of_older_numpy()
        whole = import_module(module)
        part = getattr(whole, attribute) if attribute else whole
    except (ImportError, AttributeError) as error:
        raise MissingPart(_why_part_is_missing(module, attribute, purpose, error)) from error
    globals()[name] = part
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


def _why_part_is_missing(module: str, attribute: str, purpose: str, error: Exception) -> str:
    """Why there is none, and what to install."""
    own = numba_cuda_package_version("numba-cuda")
    try:
        import_module("numba.cuda")
    except ImportError:
        return f"numba-cuda cannot be imported ({error}); run pip install '.[cuda]' in kernelgraph's folder"
    name = f"{module}.{attribute}".rstrip(".")
    return f"numba-cuda {own} has no {name} (for {purpose}); run pip install '.[cuda]' in kernelgraph's folder"


def numba_cuda_package_version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"
