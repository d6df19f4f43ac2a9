"""The derivatives of primitives: what a change of each argument adds to the result, of a routine's values.

A formula is linear in its first operand `t`. It serves both ways: the change of the argument gives the result's, and
the result's cotangent the argument's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

from ..kernel.body_builder import KernelValue

V: TypeAlias = KernelValue
Formula: TypeAlias = Callable[..., KernelValue]  # (t, *arguments, result)


def choose(c: V, a: V, b: V) -> V:
    return c.body.select(c, a, b)


def zero(like: V) -> V:
    return like.const(0)


def _sign(t: V, x: V, r: V) -> V:
    return choose(x < 0, -t, choose(x > 0, t, zero(t)))


def _extreme(t: V, x: V, y: V, r: V) -> V:
    """All of it where this argument is the result, half where both are."""
    return choose(x.eq(r), choose(x.eq(y), t * 0.5, t), zero(t))


def _base(t: V, x: V, y: V, r: V) -> V:
    one = y.const(1)
    return t * choose(y.eq(0), zero(t), y * x.pow(choose(y.eq(0), one, y - 1)))


def _exponent(t: V, x: V, y: V, r: V) -> V:
    return t * r * choose(x.eq(0), x.const(1), x).log()


NONE: tuple[Formula | None, ...] = (None, None, None)

# primitive -> a formula for each argument; None: the result does not follow it
PARTIALS: dict[str, tuple[Formula | None, ...]] = {
    "add": (lambda t, x, y, r: t, lambda t, x, y, r: t),
    "sub": (lambda t, x, y, r: t, lambda t, x, y, r: -t),
    "mul": (lambda t, x, y, r: t * y, lambda t, x, y, r: t * x),
    "div": (lambda t, x, y, r: t / y, lambda t, x, y, r: -(t / y) * r),
    "neg": (lambda t, x, r: -t,),
    "select": (None, lambda t, c, a, b, r: choose(c, t, zero(t)), lambda t, c, a, b, r: choose(c, zero(t), t)),
    "abs": (_sign,),
    "sqrt": (lambda t, x, r: t * 0.5 / r,),
    "maximum": (_extreme, lambda t, x, y, r: _extreme(t, y, x, r)),
    "minimum": (_extreme, lambda t, x, y, r: _extreme(t, y, x, r)),
    "exp": (lambda t, x, r: t * r,),
    "exp2": (lambda t, x, r: t * r * math.log(2),),
    "expm1": (lambda t, x, r: t * (r + 1),),
    "log": (lambda t, x, r: t / x,),
    "log2": (lambda t, x, r: t / (x * math.log(2)),),
    "log10": (lambda t, x, r: t / (x * math.log(10)),),
    "log1p": (lambda t, x, r: t / (x + 1),),
    "sin": (lambda t, x, r: t * x.cos(),),
    "cos": (lambda t, x, r: -t * x.sin(),),
    "tan": (lambda t, x, r: t * (r * r + 1),),
    "sinh": (lambda t, x, r: t * x.cosh(),),
    "cosh": (lambda t, x, r: t * x.sinh(),),
    "tanh": (lambda t, x, r: t * (1 - r * r),),
    "atan": (lambda t, x, r: t / (x * x + 1),),
    "hypot": (lambda t, x, y, r: t * x / r, lambda t, x, y, r: t * y / r),
    "pow": (_base, _exponent),
    **dict.fromkeys(("floor", "ceil", "trunc", "rint", *("lt", "le", "gt", "ge", "eq", "ne")), NONE),
}


class NoDerivative(Exception):
    """A routine's derivative is not known. The text says why."""


def parts(op: str, t: Any, place: int, args: list[V], result: V) -> V | None:
    """What argument `place` of a primitive has to do with `t`; None: nothing. Raises NoDerivative."""
    if args[place].dtype.kind != "f":
        return None
    if op == "cast":
        raise AssertionError("a cast converts, which way is the caller's")
    if op not in PARTIALS:
        raise NoDerivative(f"the derivative of {op} is not known in a recorded loop")
    formula = PARTIALS[op][place]
    return None if formula is None else formula(t, *args, result)
