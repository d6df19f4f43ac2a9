"""Matrix products with an epilogue, by cuBLASLt. What describes each form of a call, and the algorithm found for it, is
made at first use and kept."""

from __future__ import annotations

import ctypes
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from ....core.frozen import frozen, replace
from .cublaslt_nan_probe import shrink_cublaslt_probe_call
from .gemm import GemmCall

FORMS = 512  # that are kept
CHOICES = 8  # that are asked for
# Where the library's first choice is wrong, the next that is right takes some 5 % more (measured, float32 on an H200).
# From so many products for each result, another pass over the results costs less.
DEEP = 1024
ALIGNED = 256  # bytes: more tells the library nothing
EPILOGUES = {"relu": 2, "bias": 4, "gelu": 32}  # bits of cublasLtEpilogue_t
NO_EPILOGUE = 1
FLOAT32 = 0  # cudaDataType of what is scaled and added: the compiler asks for no others
SUMS_IN_FLOAT32 = 2  # CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE: parts of a sum are not rounded to 16 bits
# cublasLtMatmulDescAttributes_t, cublasLtMatrixLayoutAttribute_t, cublasLtMatmulPreferenceAttributes_t
TRANSPOSE_A, TRANSPOSE_B, EPILOGUE, BIAS = 3, 4, 7, 8
BATCH, STRIDE = 5, 6
WORKSPACE, REDUCTIONS, ALIGNMENTS = 1, 3, (5, 6, 7, 8)
INT32, UINT32, INT64, UINT64 = ctypes.c_int32, ctypes.c_uint32, ctypes.c_int64, ctypes.c_uint64

Enqueue = Callable[[tuple[int, ...], Any, int], None]  # at addresses, with a workspace, on a stream


@frozen
class LtMatmulForm:
    """The library's descriptors of the product and of B, A and C, and its algorithm. scales: alpha and beta; bias: the
    address that the product's descriptor has; whole: whether the epilogue is done, or all but its relu."""

    product: int
    matrices: tuple[int, int, int]
    algorithm: Any
    scales: Any
    bias: Any
    whole: bool


class CublasLt:
    """workspace: bytes that each stream has. keeps_nan: whether a call's relu keeps NaN, by a trial: a call, and what
    enqueues it at addresses, given a workspace and a stream."""

    def __init__(self, workspace: int, keeps_nan: Callable[[GemmCall, Enqueue], bool]) -> None:
        self._workspace, self._keeps_nan = workspace, keeps_nan
        self._lib: Any = None
        self._handle = 0
        self._forms: OrderedDict[tuple[GemmCall, tuple[int, ...], int], LtMatmulForm | None] = OrderedDict()
        self._verdicts: dict[tuple[Any, ...], bool] = {}  # of algorithms: whether they keep NaN
        self.lock = threading.RLock()

    def can(self, call: GemmCall) -> bool:
        """Whether the library does it, however its arrays are aligned. Algorithms for arrays that are aligned but for
        their offsets are put to the trial."""
        usual = tuple(gemm_alignment_of_address(offset) for offset in call.offsets)
        with self.lock:
            return None not in (
                self._gemm_form_of_call(call, usual, True),
                self._gemm_form_of_call(call, call.itemsizes),
            )

    def has_choice(self, call: GemmCall, choice: int) -> bool:
        """Whether there are so many right algorithms for arrays that are aligned but for their offsets."""
        usual = tuple(gemm_alignment_of_address(offset) for offset in call.offsets)
        with self.lock:
            form = self._gemm_form_of_call(call, usual, True, choice)
            return form is not None and form.whole

    def run(
        self, call: GemmCall, addresses: Sequence[int], workspace: Any, stream: int, choice: int = 0
    ) -> bool | None:
        """Enqueue it; addresses of B, A, C and the bias. False where its relu is still to be done, None where there is
        no algorithm. choice: which of those that are right, if there are so many for arrays so aligned. Raises what the
        bindings raise."""
        alignments = tuple(map(gemm_alignment_of_address, addresses))
        with self.lock:
            form = self._gemm_form_of_call(call, alignments, choice=choice)
            if form is None and choice:
                form = self._gemm_form_of_call(call, alignments)
            if form is None:
                return None
            self._enqueue_matmul(form, addresses, workspace, stream)
        return form.whole

    def _enqueue_matmul(self, form: LtMatmulForm, addresses: Sequence[int], workspace: Any, stream: int) -> None:
        """A descriptor has the bias until the call has read it: one at a time."""
        b, a, c, *bias = addresses
        if bias and bias[0] != form.bias.value:
            form.bias.value = bias[0]
            _set_cublaslt_attribute(self._lib.matmul_desc_set_attribute, form.product, BIAS, form.bias)
        matrix_b, matrix_a, matrix_c = form.matrices
        alpha = ctypes.addressof(form.scales)
        self._lib.matmul(
            self._handle, form.product, alpha, b, matrix_b, a, matrix_a, alpha + 4, c, matrix_c, c, matrix_c,
            form.algorithm.ctypes.data, workspace.address, workspace.nbytes, stream,
        )  # fmt: skip

    def _gemm_form_of_call(
        self, call: GemmCall, alignments: tuple[int, ...], trial: bool = False, choice: int = 0
    ) -> LtMatmulForm | None:
        key = (call, alignments, choice)
        if key in self._forms:
            self._forms.move_to_end(key)
            return self._forms[key]
        if self._lib is None:
            self._lib = import_module("nvmath.bindings.cublasLt")
            self._handle = self._lib.create()
        made = self._make_gemm_form(call, alignments, trial, choice)
        if made is None and "relu" in call.epilogue and not choice:
            rest = tuple(part for part in call.epilogue if part != "relu")
            plain = self._make_gemm_form(replace(call, epilogue=rest), alignments)
            made = plain and replace(plain, whole=False)
        self._forms[key] = made
        if len(self._forms) > FORMS:
            _, oldest = self._forms.popitem(last=False)
            if oldest is not None:
                self._destroy_gemm_descriptors(oldest.product, oldest.matrices)
        return made

    def _algorithm_keeps_nan(self, call: GemmCall, algorithm: Any, trial: bool) -> bool:
        """Whether an algorithm means what the call says. What the trial has not seen counts as wrong."""
        if "relu" not in call.epilogue:
            return True
        key = algorithm["algo"].tobytes(), replace(call, offsets=(0,) * len(call.offsets))
        if key not in self._verdicts and trial:
            try:
                self._verdicts[key] = self._keeps_nan(
                    *self._try_gemm_algorithm(shrink_cublaslt_probe_call(call), algorithm)
                )
            except self._lib.cuBLASLtError:  # it is not for small products
                self._verdicts[key] = False
        return self._verdicts.get(key, False)

    def _try_gemm_algorithm(self, call: GemmCall, algorithm: Any) -> tuple[GemmCall, Enqueue]:
        def enqueue_trial_matmul(addresses: tuple[int, ...], workspace: Any, stream: int) -> None:
            product, matrices = self._make_gemm_descriptors(call, tuple(map(gemm_alignment_of_address, addresses)))
            form = LtMatmulForm(product, matrices, algorithm, (ctypes.c_float * 2)(1, 0), UINT64(0), True)
            try:
                self._enqueue_matmul(form, addresses, workspace, stream)
            finally:
                self._destroy_gemm_descriptors(product, matrices)

        return call, enqueue_trial_matmul

    def _make_gemm_form(
        self, call: GemmCall, alignments: tuple[int, ...], trial: bool = False, choice: int = 0
    ) -> LtMatmulForm | None:
        """With one of the library's choices that are right; None where there are not so many."""
        product, matrices = self._make_gemm_descriptors(call, alignments)
        tried = 1 if call.shape[2] >= DEEP and not choice else CHOICES
        found = self._heuristic_algorithms(product, matrices, alignments)[:tried]
        # all are put to the trial: which is right for other alignments later does not depend on what was asked before
        right = [algorithm for algorithm in found if self._algorithm_keeps_nan(call, algorithm, trial)]
        if choice < len(right):
            return LtMatmulForm(product, matrices, right[choice], (ctypes.c_float * 2)(1, 0), UINT64(0), True)
        self._destroy_gemm_descriptors(product, matrices)
        return None

    def _make_gemm_descriptors(self, call: GemmCall, alignments: tuple[int, ...]) -> tuple[int, tuple[int, int, int]]:
        lib, (kinds, compute, _) = self._lib, call.types
        product = lib.matmul_desc_create(compute, FLOAT32)
        for name, operation in zip((TRANSPOSE_A, TRANSPOSE_B), call.operations, strict=True):
            _set_cublaslt_attribute(lib.matmul_desc_set_attribute, product, name, INT32(operation))
        parts = sum(EPILOGUES[part] for part in call.epilogue)
        _set_cublaslt_attribute(lib.matmul_desc_set_attribute, product, EPILOGUE, INT32(parts or NO_EPILOGUE))
        for aligned in alignments[3:] if "bias" in call.epilogue else ():  # any address tells how a bias is aligned
            _set_cublaslt_attribute(lib.matmul_desc_set_attribute, product, BIAS, UINT64(aligned))
        matrices = []
        for kind, shape, leading, stride in zip(kinds, call.stored_shapes, call.leading, call.strides, strict=True):
            matrix = lib.matrix_layout_create(kind, *shape, leading)
            _set_cublaslt_attribute(lib.matrix_layout_set_attribute, matrix, BATCH, INT32(call.batch))
            _set_cublaslt_attribute(lib.matrix_layout_set_attribute, matrix, STRIDE, INT64(stride))
            matrices.append(matrix)
        return product, (matrices[0], matrices[1], matrices[2])

    def _heuristic_algorithms(
        self, product: int, matrices: tuple[int, int, int], alignments: tuple[int, ...]
    ) -> list[Any]:
        """The library's choices, what it holds to be the fastest first."""
        lib, (b, a, c) = self._lib, matrices
        wanted = lib.matmul_preference_create()
        _set_cublaslt_attribute(lib.matmul_preference_set_attribute, wanted, WORKSPACE, UINT64(self._workspace))
        _set_cublaslt_attribute(lib.matmul_preference_set_attribute, wanted, REDUCTIONS, UINT32(SUMS_IN_FLOAT32))
        for name, nbytes in zip(ALIGNMENTS, (*alignments[:3], alignments[2]), strict=True):
            _set_cublaslt_attribute(lib.matmul_preference_set_attribute, wanted, name, UINT32(nbytes))
        found, count = np.zeros(CHOICES, lib.matmul_heuristic_result_dtype), ctypes.c_int(0)
        try:
            lib.matmul_algo_get_heuristic(
                self._handle, product, b, a, c, c, wanted, CHOICES, found.ctypes.data, ctypes.addressof(count)
            )
        except lib.cuBLASLtError:
            return []
        finally:
            lib.matmul_preference_destroy(wanted)
        return [found[i : i + 1] for i in range(count.value)]

    def _destroy_gemm_descriptors(self, product: int, matrices: Sequence[int]) -> None:
        self._lib.matmul_desc_destroy(product)
        for matrix in matrices:
            self._lib.matrix_layout_destroy(matrix)


def gemm_alignment_of_address(address: int) -> int:
    return min(ALIGNED, address & -address or ALIGNED)


def _set_cublaslt_attribute(setter: Any, descriptor: int, name: int, value: Any) -> None:
    setter(descriptor, name, ctypes.addressof(value), ctypes.sizeof(value))
