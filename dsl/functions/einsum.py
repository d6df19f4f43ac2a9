"""Einstein summation: subscripts and arrays in; products of matrices and fused products with sums out."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ..core.errors import DTypeError, ShapeError
from ..core.spec import checked_dtype, to_index
from ..trace.aliasing import TracerDiagonalView, view_of_tracer
from ..trace.dispatch import implements
from ..trace.operands import to_traced_array
from ..trace.tracer import Tracer
from .elementwise import apply
from .host_calls import assign_to_out
from .products import matrix_product
from .reductions import reduce
from .views import cast, moveaxis, reshape, squeeze, transpose

Label = str | int  # a letter, or the position of an axis of the ellipsis, counted from its end
Term = tuple[Label, ...]


@implements(np.einsum)
def einsum(
    *operands: Any,
    out: Any = None,
    dtype: Any = None,
    order: str = "K",
    casting: str = "safe",
    optimize: Any = False,
) -> Tracer:
    """`einsum("ij,jk->ik", a, b)` or `einsum(a, [0, 1], b, [1, 2], [0, 2])`.

    A pair of arrays with axes of their own beside those summed over is one matrix product; anything else is a product
    and a sum in one kernel. Three and more arrays are taken in pairs, in the order that `np.einsum_path` proposes."""
    subscripts, given = _subscripts_and_arrays(operands)
    arrays = [to_traced_array(a) for a in given]
    terms, result = parse_einsum_subscripts(subscripts, [x.shape for x in arrays])
    lengths = _einsum_label_lengths(terms, arrays)
    if len(arrays) > 1 or out is not None or not set(terms[0]) <= set(result):  # else a view, whatever dtype says
        arrays = _convert_einsum_operands(arrays, dtype, casting, out if optimize is False or len(given) == 1 else None)
    needed = {*result, *_labels_of_several_operands(terms)}
    parts = [_reduce_single_einsum_operand(x, term, lengths, needed) for x, term in zip(arrays, terms, strict=True)]
    for pair in _einsum_contraction_path(parts, result, lengths):
        chosen = [parts[i] for i in pair]
        parts = [p for i, p in enumerate(parts) if i not in pair]
        while len(chosen) > 1:
            later = {*result}.union(*(t for _, t in (*parts, *chosen[2:])))
            chosen = [_contract_operand_pair(*chosen[0], *chosen[1], later), *chosen[2:]]
        parts.append(chosen[0])
    ((x, term),) = parts
    gone = tuple(i for i, label in enumerate(term) if label not in result)
    if gone:
        x, term = _sum_over_labels(x, gone), tuple(label for label in term if label in result)
    if isinstance(out, Tracer) and not np.can_cast(x.dtype, out.dtype, casting):  # type: ignore[arg-type]
        raise DTypeError(f"einsum cannot cast {x.dtype} to {out.dtype} of out= with casting={casting!r}; pass another")
    return assign_to_out(transpose(x, [term.index(label) for label in result]), out)


def _labels_of_several_operands(terms: Sequence[Term]) -> set[Label]:
    """Labels of more than one operand."""
    seen = Counter(label for term in terms for label in set(term))
    return {label for label, n in seen.items() if n > 1}


# subscripts


def _subscripts_and_arrays(operands: Sequence[Any]) -> tuple[str, Sequence[Any]]:
    """The subscripts as text, and the arrays."""
    if not operands:
        raise ShapeError("must specify the einstein sum subscripts string and at least one operand")
    if isinstance(operands[0], str):
        return operands[0].replace(" ", ""), operands[1:]
    arrays, lists = list(operands[0::2]), list(operands[1::2])
    text = ",".join(map(_subscript_text_of_numbers, lists))
    if len(arrays) > len(lists):
        return f"{text}->{_subscript_text_of_numbers(arrays[-1])}", arrays[:-1]
    return text, arrays


_ALL_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def _subscript_text_of_numbers(numbers: Any) -> str:
    """A list of numbers and Ellipsis as text."""
    found = ["..." if n is Ellipsis else _ALL_LETTERS[to_index(n, "a subscript")] for n in numbers]
    return "".join(found)


def parse_einsum_subscripts(subscripts: str, shapes: Sequence[tuple[int, ...]]) -> tuple[list[Term], Term]:
    """The labels of each operand's axes and of the result's. Raises ShapeError."""
    inputs, arrow, output = subscripts.partition("->")
    texts = inputs.split(",")
    if len(texts) != len(shapes):
        raise ShapeError(f"einsum {subscripts!r} names {len(texts)} operands, but {len(shapes)} were given")
    terms = [_parse_einsum_term(text, len(shape), subscripts) for text, shape in zip(texts, shapes, strict=True)]
    dots = max((sum(isinstance(label, int) for label in term) for term in terms), default=0)
    broadcast: Term = tuple(range(-dots, 0))
    if not arrow:
        seen = Counter(label for term in terms for label in term if isinstance(label, str))
        return terms, (*broadcast, *sorted(label for label, n in seen.items() if n == 1))
    result = _parse_einsum_term(output, len(output.replace("...", "")) + dots * ("..." in output), subscripts)
    if dots and "..." not in output:
        raise ShapeError(f"einsum {subscripts!r}: the operands' ellipsis has axes; write '...' in the output as well")
    known = {label for term in terms for label in term}
    for label, n in Counter(result).items():
        if n > 1:
            raise ShapeError(f"einsum {subscripts!r} has the output label {label!r} twice")
        if label not in known:
            raise ShapeError(f"einsum {subscripts!r} has the output label {label!r}, which no operand has")
    return terms, result


def _parse_einsum_term(text: str, ndim: int, subscripts: str) -> Term:
    head, dots, tail = text.partition("...")
    letters = head + tail
    if not all(c in _ALL_LETTERS for c in letters):
        raise ShapeError(f"einsum {subscripts!r}: {text!r} may hold letters and one '...' alone")
    extra = ndim - len(letters)
    if extra < 0 or (extra and not dots):
        raise ShapeError(f"einsum {subscripts!r}: {text!r} names {len(letters)} axes of an array that has {ndim}")
    return (*head, *range(-extra, 0), *tail)


def _einsum_label_lengths(terms: Sequence[Term], arrays: Sequence[Tracer]) -> dict[Label, int]:
    """The length that each label stands for; 1 gives way to any other."""
    lengths: dict[Label, int] = {}
    for term, x in zip(terms, arrays, strict=True):
        for i, (label, n) in enumerate(zip(term, x.shape, strict=True)):
            if n != x.shape[term.index(label)]:
                raise ShapeError(f"einsum: axes {term.index(label)} and {i} of {x.shape} share the label {label!r}")
            if lengths.setdefault(label, n) == 1:
                lengths[label] = n
            elif n not in (1, lengths[label]):
                raise ShapeError(f"einsum: axes of lengths {lengths[label]} and {n} share the label {label!r}")
    return lengths


def _convert_einsum_operands(arrays: Sequence[Tracer], given: Any, casting: str, out: Any) -> list[Tracer]:
    """The arrays in one dtype: the given one, or theirs, in which that of `out` counts."""
    joined = [*arrays, *([out] if isinstance(out, Tracer) else [])]
    dtype = np.result_type(*(x.dtype for x in joined)) if given is None else checked_dtype(given)
    for x in arrays:
        if not np.can_cast(x.dtype, dtype, casting):  # type: ignore[arg-type]
            raise DTypeError(f"einsum cannot cast {x.dtype} to {dtype} with casting={casting!r}; write x.astype(...)")
    return [x if x.dtype == dtype else cast(x, dtype) for x in arrays]


# operands


def _reduce_single_einsum_operand(
    x: Tracer, term: Term, lengths: dict[Label, int], needed: Iterable[Label]
) -> tuple[Tracer, Term]:
    """One operand by itself: diagonals where a label comes twice, sums over labels that nobody else has."""
    wide = tuple(i for i, label in enumerate(term) if x.shape[i] == 1 and lengths[label] != 1)
    if wide:
        x, term = squeeze(x, wide), tuple(label for i, label in enumerate(term) if i not in wide)
    for label in [label for label, n in Counter(term).items() for _ in range(n - 1)]:
        i = term.index(label)
        j = term.index(label, i + 1)
        x = view_of_tracer(moveaxis(x, (i, j), (-2, -1)), TracerDiagonalView(0, writable=True))
        term = (*(other for k, other in enumerate(term) if k not in (i, j)), label)
    gone = tuple(i for i, label in enumerate(term) if label not in set(needed))
    return (_sum_over_labels(x, gone), tuple(label for label in term if label in set(needed))) if gone else (x, term)


def _sum_over_labels(x: Tracer, axes: tuple[int, ...]) -> Tracer:
    return reduce("any", x, axes) if x.dtype == np.bool_ else reduce("sum", x, axes, x.dtype)


def _contract_operand_pair(
    a: Tracer, left: Term, b: Tracer, right: Term, needed: Iterable[Label]
) -> tuple[Tracer, Term]:
    """The product of two operands, summed over the labels of both that nobody needs."""
    keep = set(needed)
    batch = [label for label in left if label in right and label in keep]
    summed = [label for label in left if label in right and label not in keep]
    own_a, own_b = [label for label in left if label not in right], [label for label in right if label not in left]
    order = (*batch, *own_a, *own_b)
    if summed and own_a and own_b:
        return _contract_by_matrix_product(a, left, b, right, batch, own_a, own_b, summed), order
    full = (*order, *summed)
    product = apply("multiply", _align_operand_axes(a, left, full), _align_operand_axes(b, right, full))
    axes = tuple(range(len(order), len(full)))
    if axes:
        return _sum_over_labels(product, axes), order
    return apply("add", product, 0) if product.dtype.kind in "fc" else product, order  # it adds to 0.0


def _align_operand_axes(x: Tracer, term: Term, order: Term) -> Tracer:
    """The operand with its axes in this order. Labels that it has not get axes of length 1."""
    moved = transpose(x, [term.index(label) for label in order if label in term])
    lengths = iter(moved.shape)
    return reshape(moved, tuple(next(lengths) if label in term else 1 for label in order))


def _contract_by_matrix_product(
    a: Tracer,
    left: Term,
    b: Tracer,
    right: Term,
    batch: Sequence[Label],
    own_a: Sequence[Label],
    own_b: Sequence[Label],
    summed: Sequence[Label],
) -> Tracer:
    def flatten_label_groups(x: Tracer, term: Term, *groups: Sequence[Label]) -> tuple[Tracer, list[list[int]]]:
        """x with the batch first, then one axis for each group; and the groups' lengths."""
        moved = transpose(x, [term.index(label) for group in (batch, *groups) for label in group])
        sizes = [[x.shape[term.index(label)] for label in group] for group in (batch, *groups)]
        return reshape(moved, (*sizes[0], *map(math.prod, sizes[1:]))), sizes

    rows, (lead, height, _) = flatten_label_groups(a, left, own_a, summed)
    columns, (_, _, width) = flatten_label_groups(b, right, summed, own_b)
    return reshape(matrix_product(rows, columns), (*lead, *height, *width))


def _einsum_contraction_path(
    parts: Sequence[tuple[Tracer, Term]], result: Term, lengths: dict[Label, int]
) -> list[tuple[int, ...]]:
    """Which operands to take together, and in which order; what they make goes to the end of the list."""
    if len(parts) <= 2:
        return [tuple(range(len(parts)))]
    labels = list(dict.fromkeys(label for _, term in parts for label in term))
    if len(labels) > len(_ALL_LETTERS):
        return [(0, 1), *((0, len(parts) - 2 - i) for i in range(len(parts) - 2))]
    letter = dict(zip(labels, _ALL_LETTERS, strict=False))
    text = ",".join("".join(letter[label] for label in term) for _, term in parts)
    output = "".join(letter[label] for label in result if label in letter)
    stand_ins = [np.broadcast_to(np.empty(()), tuple(lengths[label] for label in term)) for _, term in parts]
    return [tuple(step) for step in np.einsum_path(f"{text}->{output}", *stand_ins, optimize="greedy")[0][1:]]
