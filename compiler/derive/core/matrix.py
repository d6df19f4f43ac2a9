"""Matrices along the last two axes of a value, with Python's operators. Formulas of linear algebra are written with
them."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from ...core.types import ArrayType
from ...graph.builder import GraphBuilder
from ...graph.graph import Value
from ...ops.derivatives import Term
from .call import RuleCall, adjoint_matrices_in_rule, conjugated_cotangent, transpose_matrices_in_rule


class RuleMatrix(Term):
    """A term whose last two axes are rows and columns; those before them are broadcast."""

    __slots__ = ()
    builder: GraphBuilder
    value: Value

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape

    @property
    def H(self) -> Self:
        """Transposed and conjugated."""
        return type(self)(self.builder, adjoint_matrices_in_rule(self.builder, self.value))

    @property
    def T(self) -> Self:
        """Transposed."""
        return type(self)(self.builder, transpose_matrices_in_rule(self.builder, self.value))

    @property
    def conj(self) -> Self:
        return type(self)(self.builder, conjugated_cotangent(self.builder, self.value))

    @property
    def real(self) -> Self:
        """The real part; real matrices as they are."""
        return self.map("real") if self.is_complex else self

    @property
    def diagonal(self) -> Self:
        """The main diagonals, as matrices of one row."""
        *batch, m, n = self.shape
        k = min(m, n)
        flat = self.builder.reshape(self.value, (*batch, m * n))
        rank = flat.ndim
        found = self.builder.slice(flat, (0,) * rank, (*(1,) * (rank - 1), n + 1), (*batch, k))
        return type(self)(self.builder, self.builder.reshape(found, (*batch, 1, k)))

    def __matmul__(self, other: RuleMatrix) -> Self:
        return type(self)(self.builder, self.builder.matmul(self.value, other.value))

    def part(self, rows: range, columns: range) -> Self:
        """A block."""
        *batch, _, _ = self.shape
        starts = (*(0,) * len(batch), rows.start, columns.start)
        shape = (*batch, len(rows), len(columns))
        return type(self)(self.builder, self.builder.slice(self.value, starts, (1,) * len(starts), shape))

    def where(self, relation: str, other: Any = 0) -> Self:
        """The elements whose row is in this relation to their column (`greater` for those below the diagonal), and in
        place of the others `other`."""
        rows, columns = (self.builder.index(self.shape[-2:], axis) for axis in (0, 1))
        mask = self.builder.broadcast(self.builder.map(relation, rows, columns), self.shape)
        instead = other.value if isinstance(other, Term) else self.builder.const(other, self.value.dtype)
        return type(self)(self.builder, self.builder.map("where", mask, self.value, instead))

    def sum(self, *axes: int) -> Self:
        """Over these axes, which stay, of length 1."""
        rank = len(self.shape)
        over = sorted(axis % rank for axis in axes)
        found = self.builder.reduce("sum", self.value, over, self.value.dtype)
        kept = tuple(1 if i in over else n for i, n in enumerate(self.shape))
        return type(self)(self.builder, self.builder.reshape(found, kept))

    def solve(self, other: RuleMatrix) -> Self:
        """x with self @ x == other."""
        batch = self.builder.broadcast_shapes("solve", [self.shape[:-2], other.shape[:-2]])
        dtype = np.result_type(self.value.dtype, other.value.dtype)
        type_ = ArrayType((*batch, *other.shape[-2:]), dtype)
        (found,) = self.builder.host("linalg.solve", [self.value, other.value], [type_])
        return type(self)(self.builder, found)


def rule_matrix_of_value(call: RuleCall, value: Value) -> RuleMatrix:
    """A value as matrices; integers as the floats that NumPy makes of them."""
    if value.dtype.kind not in "fc":
        value = call.builder.cast(value, "f8")
    return RuleMatrix(call.builder, value)
