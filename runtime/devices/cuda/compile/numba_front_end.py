"""A kernel's Python function in, LLVM IR out: what numba.cuda does to it before NVVM, in less time.

Kernel text has no arrays, closures or overloaded functions, and calls few functions with few types, again and again in
every kernel. So the passes for such things are left out, and what a call means is resolved once in the process.
"""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

from .numba_parts import (
    OPERATORS_TO_BUILTINS,
    CUDACallConv,
    CUDACompiler,
    CUDAFlags,
    CUDATypingContext,
    PassManager,
    compile_extra,
    cuda_target,
    target_override,
    types,
)

# Passes for what kernel text has not: closures, functions to be inlined, `with`, exceptions, calls of `literally`.
NEEDLESS = {"WithLifting", "InlineClosureLikes", "RewriteDynamicRaises", "MakeFunctionToJitFunction"}
NEEDLESS |= {"InlineInlinables", "InlineOverloads", "FindLiterallyCalls", "LiteralUnroll"}
NEEDLESS |= {"LiteralPropagationSubPipelinePass", "AnnotateTypes"}


def compile_in_few_passes(function: Any, parameters: tuple[Any, ...], cc: tuple[int, int], fastmath: bool) -> Any:
    """What `numba.cuda.compiler.compile_cuda` gives for a kernel that calls no function of the user's, or raises
    ImportError, AttributeError or TypeError where numba.cuda has other insides. The caller holds numba's lock."""
    with target_override("cuda"):
        typing, lowering = _numba_cuda_compile_contexts()
        made = compile_extra(
            typing,
            lowering,
            function,
            parameters,
            types.void,
            _numba_compiler_flags(cc, fastmath),
            {},
            pipeline_class=_NumbaCudaPipeline,
            call_conv=CUDACallConv(lowering),
            abi_info={},
        )
        made.library.finalize()
        return made


def _numba_compiler_flags(cc: tuple[int, int], fastmath: bool) -> Any:
    flags = CUDAFlags()
    flags.no_compile = flags.no_cpython_wrapper = flags.no_cfunc_wrapper = True
    flags.no_rewrites = True
    flags.error_model = "numpy"
    flags.fastmath = fastmath
    flags.nvvm_options = {"fastmath": fastmath, "opt": 3, "fma": fastmath}
    flags.compute_capability = cc
    return flags


class _NumbaCudaPipeline(CUDACompiler):  # type: ignore[misc]
    def define_pipelines(self) -> list[Any]:
        (whole,) = super().define_pipelines()
        passes = PassManager("kernel")
        passes.passes = [(p, why) for p, why in whole.passes if p.__name__ not in NEEDLESS]
        passes.finalize()
        return [passes]


class _CachedNumbaCudaOperator(types.Function):  # type: ignore[misc]
    """An operator, which is resolved again when it is lowered."""

    def __init__(self, operator: Any) -> None:
        super().__init__(operator.templates)
        self._call_types: dict[Any, Any] = {}

    def get_call_type(self, context: Any, args: Any, kws: Any) -> Any:
        key = (tuple(args), tuple(kws.items()))
        if key not in self._call_types:
            self._call_types[key] = super().get_call_type(context, args, kws)
        return self._call_types[key]


class _SharedNumbaCudaTypingContext(CUDATypingContext):  # type: ignore[misc]
    """numba.cuda's own typing context, all of whose registrations it shares, that remembers what it resolved."""

    def __init__(self, whole: Any) -> None:
        self.__dict__ |= vars(whole)
        self._calls: dict[Any, Any] = {}
        self._operators: dict[Any, Any] = {}

    def resolve_function_type(self, function: Any, args: Any, kws: Any) -> Any:
        key = (function, tuple(args), tuple(kws.items()))
        if key not in self._calls:
            self._calls[key] = super().resolve_function_type(function, args, kws)
        return self._calls[key]

    def resolve_value_type(self, value: Any) -> Any:
        if value not in OPERATORS_TO_BUILTINS:
            return super().resolve_value_type(value)
        if value not in self._operators:
            self._operators[value] = _CachedNumbaCudaOperator(super().resolve_value_type(value))
        return self._operators[value]


@cache
def _numba_cuda_compile_contexts() -> tuple[Any, Any]:
    """For types and for lowering."""
    whole = cuda_target
    whole.target_context.refresh()
    typing, lowering = _SharedNumbaCudaTypingContext(whole.typing_context), copy.copy(whole.target_context)
    lowering.typing_context = typing
    return typing, lowering
