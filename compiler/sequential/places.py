"""Places of elements as sums of a routine's values: which elements are the same in all turns, and how far apart are."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...runtime.core.frozen import frozen
from ..core.types import INT64
from .form import Block, Let

FARTHEST = 1 << 62  # from the start of an array


@frozen
class ElementPlace:
    """`constant + sum(factor * value)` of int64 values."""

    constant: int
    terms: Mapping[int, int]

    def __add__(self, other: ElementPlace) -> ElementPlace:
        terms = {v: self.terms.get(v, 0) + other.terms.get(v, 0) for v in (*self.terms, *other.terms)}
        return ElementPlace(self.constant + other.constant, {v: n for v, n in terms.items() if n})

    def __mul__(self, factor: int) -> ElementPlace:
        return ElementPlace(self.constant * factor, {v: n * factor for v, n in self.terms.items() if factor})

    def __sub__(self, other: ElementPlace) -> ElementPlace:
        return self + other * -1

    def plus(self, constant: int) -> ElementPlace:
        return ElementPlace(self.constant + constant, self.terms)

    def replaced(self, value: int, by: int) -> ElementPlace:
        """With another value in the place of one."""
        rest = ElementPlace(self.constant, {v: n for v, n in self.terms.items() if v != value})
        return rest + ElementPlace(0, {by: self.terms[value]}) if value in self.terms else rest


class PlacesOfValues:
    """What the int64 values of a routine are as places; those that it does not follow are themselves."""

    def __init__(self, known: Mapping[int, ElementPlace] | None = None) -> None:
        self.known = dict(known or {})

    def place(self, value: int) -> ElementPlace:
        return self.known.get(value) or ElementPlace(0, {value: 1})

    def within(self, block: Block) -> PlacesOfValues:
        """With those of a block."""
        found = PlacesOfValues(self.known)
        for s in block:
            if isinstance(s, Let) and s.instr.dtype == INT64:
                found.known[s.number] = found._place_of_result(s)
        return found

    def _place_of_result(self, s: Let) -> ElementPlace:
        args = [self.place(a) for a in s.instr.args]
        if s.instr.op == "const":
            return ElementPlace(int(np.frombuffer(s.instr.attr, INT64)[0]), {})
        if s.instr.op == "add":
            return args[0] + args[1]
        if s.instr.op == "sub":
            return args[0] - args[1]
        if s.instr.op == "neg":
            return args[0] * -1
        if s.instr.op == "mul" and not (args[0].terms and args[1].terms):
            found = args[0] * args[1].constant if args[0].terms else args[1] * args[0].constant
            if abs(found.constant) < FARTHEST:  # powers of constants would have very many digits
                return found
        return ElementPlace(0, {s.number: 1})
