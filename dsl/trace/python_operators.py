"""What Python's own operators make of numbers of which only the types are known: Python is asked, with samples. And
how large its ints may become: what cannot have more than 64 bits need not be checked."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from ...compiler.graph.graph import Node

if TYPE_CHECKING:
    from .trace import Trace

# of each sign; no sample is 0, for which Python raises ZeroDivisionError: that depends on the value alone
SAMPLES: dict[Any, tuple[Any, ...]] = {bool: (False, True), int: (-2, 3), float: (-1.5, 2.0, 2.5), complex: (1j,)}
LARGEST_SAMPLE = 64  # a larger number is known by its sign: its powers may have very many digits


def python_result_type(method: str, *operands: Any) -> type | None:
    """The type that an operator gives of numbers, each a known one or its type; None where values decide it.

    Raises what Python raises for all values. None is given too where it raises for some, and no divisor is 0."""
    types, errors = _results_of_samples(method, *map(_bounded_sample, operands))
    if errors and not types:
        raise type(errors[0])(*errors[0].args)
    return None if errors or len(types) > 1 else types[0]


def _bounded_sample(x: Any) -> Any:
    is_large = type(x) in (int, float) and abs(x) > LARGEST_SAMPLE
    return type(x)(LARGEST_SAMPLE if x > 0 else -LARGEST_SAMPLE) if is_large else x


@lru_cache(1024, typed=True)
def _results_of_samples(method: str, *operands: Any) -> tuple[tuple[type, ...], tuple[Exception, ...]]:
    function, types, errors = getattr(operator, method), dict[type, None](), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # ~True is deprecated
        for given in product(*(SAMPLES[x] if isinstance(x, type) else (x,) for x in operands)):
            try:
                types[type(function(*given))] = None
            except Exception as error:
                errors.append(error)
    return (*types,), (*errors,)


# ints: their magnitudes

INT64_MAX = (1 << 63) - 1
COUNTER_BOUND = 1 << 62  # a loop that adds at most COUNTER_STEP a turn would run for hours to reach this
COUNTER_STEP = 1 << 24


def _all_bits(*parts: int) -> int:
    return (1 << max(parts).bit_length()) - 1


# rows of ints: the largest magnitude of a result, of those of its operands
MAGNITUDES: dict[str, Callable[..., int]] = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a + b,
    "multiply": lambda a, b: a * b,
    "power": lambda a, b: a**b if b < 64 else INT64_MAX + 1,
    "left_shift": lambda a, b: a << b if b < 64 else INT64_MAX + 1,
    "right_shift": lambda a, b: a,
    "floor_divide": lambda a, b: a,
    "remainder": lambda a, b: b,
    "bitwise_and": _all_bits,
    "bitwise_or": _all_bits,
    "bitwise_xor": _all_bits,
    "invert": lambda a: a + 1,
    "negative": lambda a: a,
    "positive": lambda a: a,
    "absolute": lambda a: a,
    "minimum": max,
    "maximum": max,
    "where": lambda condition, a, b: max(a, b),
    "cast": lambda a: a,
    "reshape": lambda a: a,
    "broadcast": lambda a: a,
}


def magnitude_of_row(op: str, operands: Sequence[int], dtype: np.dtype[Any]) -> int:
    """The largest magnitude of what a row gives, as Python's ints have it; of any other row that of the dtype."""
    rule = MAGNITUDES.get(op)
    return magnitude_of_dtype(dtype) if rule is None else rule(*operands)


def magnitude_of_dtype(dtype: np.dtype[Any]) -> int:
    """The largest magnitude of numbers of a dtype; beyond those of int64 for floats."""
    if dtype.kind == "b":
        return 1
    return 1 << (8 * dtype.itemsize - (dtype.kind == "i")) if dtype.kind in "iu" else INT64_MAX + 1


def magnitude_of_node(trace: Trace, number: int) -> int:
    """The largest magnitude of a node's elements, by what they are computed from."""
    nodes, known = trace.builder.nodes, trace.magnitudes
    todo = [number]
    while todo:
        at = todo[-1]
        node = nodes[at]
        unknown = [arg for arg in node.args if arg not in known] if node.op in MAGNITUDES else []
        if unknown and at not in known:
            todo += unknown
        else:
            known.setdefault(at, _magnitude_of_known_arguments(node, known))
            todo.pop()
    return known[number]


def _magnitude_of_known_arguments(node: Node, known: Mapping[int, int]) -> int:
    bound = magnitude_of_dtype(node.dtype)
    if node.op == "const" and node.dtype.kind in "iu":
        return abs(int(np.frombuffer(node.attr("value"), node.dtype)[0]))
    if node.op not in MAGNITUDES:
        return bound
    return min(bound, magnitude_of_row(node.op, [known[arg] for arg in node.args], node.dtype))
