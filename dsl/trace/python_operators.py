"""What Python's own operators make of numbers of which only the types are known: Python is asked, with samples."""

from __future__ import annotations

import operator
import warnings
from functools import lru_cache
from itertools import product
from typing import Any

# of each sign; no sample is 0, for which Python raises ZeroDivisionError: that depends on the value alone
SAMPLES: dict[Any, tuple[Any, ...]] = {bool: (False, True), int: (-2, 3), float: (-1.5, 2.0, 2.5), complex: (1j,)}
LARGEST = 64  # a larger number is known by its sign: its powers may have very many digits


def python_result_type(method: str, *operands: Any) -> type | None:
    """The type that an operator gives of numbers, each a known one or its type; None where values decide it.

    Raises what Python raises for all values. None is given too where it raises for some, and no divisor is 0."""
    types, errors = _results_of_samples(method, *map(_bounded_sample, operands))
    if errors and not types:
        raise type(errors[0])(*errors[0].args)
    return None if errors or len(types) > 1 else types[0]


def _bounded_sample(x: Any) -> Any:
    return type(x)(max(-LARGEST, min(x, LARGEST))) if type(x) in (int, float) and abs(x) > LARGEST else x


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
