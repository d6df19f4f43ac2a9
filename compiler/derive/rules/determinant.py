"""The rule of determinants. They are polynomials: they have derivatives of every order, of singular matrices too.

A small one is written as its polynomial. The derivative of a larger one is its cofactors: det(a) a^-T where that has
its digits; else those of det(u) det(b) det(v), where a = u b v with constant u and v, its singular vectors, and b is a
diagonal matrix of falling numbers: a block that has an inverse, and the polynomial of what is left in the corner. That
is exact up to the third order whatever the rank, and to every order where at most four singular values are 0.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations

import numpy as np

from ...core.types import ArrayType, real_dtype
from ...graph.builder import GraphBuilder
from ...graph.control_flow import Branch, add_control_flow_node
from ...graph.graph import Graph, Value
from ..core.call import RuleCall
from ..core.kinds import Choice, Maybe, Rule, Tangent, Tangents, Written
from ..core.matrix import RuleMatrix, rule_matrix_of_value

CORNER = 4  # the size of the corner, and of matrices that are all corner


def _polynomial_of_determinant(a: RuleMatrix) -> RuleMatrix:
    """The determinant of small matrices by minors of the last rows, of one, two, ... of them."""
    n = a.shape[-1]

    def element(i: int, j: int) -> RuleMatrix:
        return a.part(range(i, i + 1), range(j, j + 1))

    minors: dict[tuple[int, ...], RuleMatrix] = {(j,): element(n - 1, j) for j in range(n)}
    for row in reversed(range(n - 1)):
        larger: dict[tuple[int, ...], RuleMatrix] = {}
        for columns in combinations(range(n), n - row):
            total: RuleMatrix | None = None
            for place, j in enumerate(columns):
                term = element(row, j) * minors[columns[:place] + columns[place + 1 :]]
                total = term if total is None else total - term if place % 2 else total + term
            assert total is not None
            larger[columns] = total
        minors = larger
    return minors[tuple(range(n))]


def _rewrite_small_determinant(call: RuleCall) -> dict[int, Value]:
    found = _polynomial_of_determinant(rule_matrix_of_value(call, call.args[0]))
    return {0: call.builder.cast(call.builder.reshape(found.value, call.node.shape), call.node.dtype)}


def _determinant_tangents(call: RuleCall, tangents: Sequence[Maybe]) -> Tangents:
    """The sum of the cofactors times da."""
    (t,), builder, (a,) = tangents, call.builder, call.args
    if t is None:
        return {0: None}
    bodies = _cofactors_of_regular_matrices(call), _cofactors_of_any_matrices(call)
    (cofactors,) = add_control_flow_node(builder, Branch(bodies), [_are_regular(call), a, call.result])
    weighted = RuleMatrix(builder, cofactors) * RuleMatrix(builder, t)
    return {0: builder.reshape(weighted.sum(-2, -1).value, call.node.shape)}


def _are_regular(call: RuleCall) -> Value:
    """Whether the determinants are not far below the products of the rows' norms: by what random matrices are, and half
    of the digits. True of NaN, of which there are no singular vectors."""
    builder, (a,), n = call.builder, call.args, call.args[0].shape[-1]
    size = builder.map("absolute", a)
    rank = a.ndim
    squares = builder.reduce("sum", builder.map("multiply", size, size), (rank - 1,))
    logs = builder.map("multiply", builder.map("log", squares), 0.5)
    bound = builder.reduce("sum", logs, (rank - 2,))
    least = builder.map("add", bound, math.log(np.finfo(size.dtype).eps) / 2 - n / 2)
    below = builder.map("less_equal", builder.map("log", builder.map("absolute", call.result)), least)
    return builder.map("logical_not", builder.reduce("any", below, tuple(range(below.ndim))))


def _body_of_cofactors(call: RuleCall) -> tuple[GraphBuilder, RuleMatrix, RuleMatrix]:
    """The builder of a branch's body, its matrices and their determinants."""
    body = GraphBuilder("cofactors")
    a, det = body.input(call.args[0].type), body.input(call.result.type)
    return body, RuleMatrix(body, a), RuleMatrix(body, body.reshape(det, (*det.shape, 1, 1)))


def _cofactors_of_regular_matrices(call: RuleCall) -> Graph:
    body, a, det = _body_of_cofactors(call)
    (inverse,) = body.host("linalg.inv", [a.value], [a.value.type])
    return body.finish([(RuleMatrix(body, inverse).T * det).value])


def _cofactors_of_any_matrices(call: RuleCall) -> Graph:
    """The gradient of the determinant as it is written with constant singular vectors."""
    body, a, _ = _body_of_cofactors(call)
    *batch, n, _ = a.shape
    real, whole = real_dtype(a.value.dtype), a.value.type
    constant = body.map("stop_gradient", a.value)
    types = [whole, ArrayType((*batch, n), real), whole]
    u, s, vh = body.host("linalg.svd", [constant], types, full_matrices=True, hermitian=False)
    left, right = RuleMatrix(body, u).H, RuleMatrix(body, vh).H
    b, split = left @ a @ right, n - CORNER
    first, last = range(split), range(split, n)
    values = RuleMatrix(body, body.reshape(s, (*batch, 1, n)))
    greatest = values.part(range(1), range(1))
    zero = values.part(range(1), first).map("less_equal", greatest * (n * float(np.finfo(real).eps)))
    instead = greatest.map("equal", 0).map("where", 1.0, greatest)  # of a rank so low that all is 0 in the corner
    ones = RuleMatrix(body, body.broadcast(body.const(1, real), (split, split))).where("equal")
    block = b.part(first, first) + ones * zero.map("where", instead, 0.0)
    corner = b.part(last, last) - b.part(last, first) @ block.solve(b.part(first, last))
    sign, size = body.host(
        "linalg.slogdet", [block.value], [ArrayType(tuple(batch), whole.dtype), ArrayType(tuple(batch), real)]
    )
    product = body.map("multiply", sign, body.map("exp", size))
    turns = [body.host("linalg.det", [m], [ArrayType(tuple(batch), whole.dtype)])[0] for m in (u, vh)]
    product = body.map("multiply", product, body.map("multiply", *turns))
    found = body.map("multiply", product, body.reshape(_polynomial_of_determinant(corner).value, tuple(batch)))
    ones_of_batch = body.broadcast(body.const(1, whole.dtype), tuple(batch))
    (gradient,) = call.walks.pull_back(body, [found], [ones_of_batch], [a.value], {})
    assert gradient is not None
    return body.finish([body.map("conjugate", gradient) if whole.dtype.kind == "c" else gradient])


DETERMINANT: Rule = Choice(
    lambda call: (
        Written(_rewrite_small_determinant) if call.args[0].shape[-1] <= CORNER else Tangent(_determinant_tangents)
    )
)
