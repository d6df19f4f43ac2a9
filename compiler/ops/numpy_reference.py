"""NumPy references of the rows that are no ufuncs. Arrays in, the array that defines the op's meaning out."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from ...runtime.program.user_function import UserFunction, apply_user_function_over_arrays
from ..core.types import HALVES
from ..kernel.primitives import PRIMITIVES

Array: TypeAlias = np.ndarray[Any, Any]


def reference_in_float64(function: Callable[..., Any]) -> Callable[..., Array]:
    """`function` computed in float64 and rounded once to the dtype of its argument, or to that of integers' roots."""

    def compute_in_float64(x: Any, *args: Any, **attrs: Any) -> Array:
        x = np.asarray(x)
        if x.dtype.kind in "biu":
            x = x.astype(np.sqrt(np.zeros((), x.dtype)).dtype)
        with np.errstate(all="ignore"):
            return np.asarray(function(x.astype(np.float64), *args, **attrs)).astype(x.dtype)

    compute_in_float64.__wrapped__ = function  # type: ignore[attr-defined]  # whose signature it has
    return compute_in_float64


def ufunc_output_reference(ufunc: np.ufunc, number: int) -> Callable[..., Any]:
    """Result `number` of a ufunc of several results."""
    return lambda *args: ufunc(*args)[number]


def _reference_of_primitive(name: str) -> Callable[..., Array]:
    primitive = PRIMITIVES[name]
    return reference_in_float64(lambda x: primitive.numpy(np.atleast_1d(x), x.dtype).reshape(x.shape))


erf, erfc, lgamma = map(_reference_of_primitive, ("erf", "erfc", "lgamma"))


@reference_in_float64
def sigmoid(x: Array) -> Array:
    return np.asarray(np.exp(np.minimum(x, 0)) / (1 + np.exp(-abs(x))))


def gelu_is_by_tanh(approximate: bool | str) -> bool:
    """Whether a `gelu` of that argument, PyTorch's words or a truth value, is the formula with tanh."""
    if approximate not in (False, True, "none", "tanh"):
        raise ValueError(f"approximate={approximate!r} is neither 'none' nor 'tanh'; write approximate='tanh'")
    return approximate in (True, "tanh")


@reference_in_float64
def gelu(x: Array, approximate: bool | str = False) -> Array:
    if gelu_is_by_tanh(approximate):
        tail = np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))
        return np.asarray(0.5 * x * (1 + tail))
    return np.asarray(0.5 * x * erfc(-x * math.sqrt(0.5)))


def same_value_reference(x: Any) -> Array:
    return np.asarray(x)


def high_bits_reference(x: Any) -> Array:
    """A float32 without what TF32 has no room for: its last 13 bits are 0."""
    return (np.asarray(x, np.float32).view(np.int32) & -(1 << 13)).view(np.float32)


def place_op_reference(x: Any, device: tuple[str, int]) -> Array:
    return np.asarray(x)


def first_argument_reference(x: Any, after: Any) -> Array:
    return np.broadcast_arrays(x, after)[0]


def relu_reference(x: Any) -> Array:
    x = np.asarray(x)
    return np.asarray(np.where(x < 0, x.dtype.type(0), x))


def clip_reference(x: Any, low: Any, high: Any) -> Any:
    x = np.asarray(x)
    return (
        np.clip(x, low, high)
        if x.dtype not in HALVES
        else np.clip(x.astype("f4"), *map(_widened_for_reference, (low, high))).astype(x.dtype)
    )


def _widened_for_reference(x: Any) -> Array:
    return np.asarray(x).astype(np.float32)


def cast_reference(x: Any) -> Any:
    """The value itself: the result's dtype says what it becomes."""
    return x


def complex_reference(re: Any, im: Any) -> Array:
    """re + im * 1j, but for NaN and infinities, which stay in their half."""
    re, im = np.broadcast_arrays(re, im)
    found = np.empty(re.shape, np.result_type(re, im, np.complex64))
    found.real, found.imag = re, im
    return found


def angle_reference(z: Any, deg: bool = False) -> Array:
    z = np.asarray(z)
    if z.dtype in HALVES:
        return np.asarray(angle_reference(z.astype(np.float32), deg)).astype(z.dtype)
    return np.asarray(np.angle(z, deg=deg))


def nan_to_num_reference(x: Any, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None) -> Array:
    x = np.asarray(x)
    if x.dtype == HALVES[1]:  # NumPy does not know bfloat16's limits
        import ml_dtypes

        limits: Any = ml_dtypes.finfo(x.dtype)  # type: ignore[no-untyped-call]
        posinf = float(limits.max) if posinf is None else posinf
        neginf = float(limits.min) if neginf is None else neginf
        wide = np.nan_to_num(x.astype(np.float32), nan=nan, posinf=posinf, neginf=neginf)
        return np.asarray(wide.astype(x.dtype))
    return np.asarray(np.nan_to_num(x, nan=nan, posinf=posinf, neginf=neginf))


def user_call_reference(*args: Any, function: UserFunction, part: int) -> Array:
    """Result `part` of a user's scalar function of each element."""
    return apply_user_function_over_arrays(function, part, *args)
