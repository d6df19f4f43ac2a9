"""Fourier transforms (`np.fft`): by NumPy on the host; shifts and frequencies in kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..core.errors import ShapeError
from ..core.spec import to_index
from ..trace.dispatch import implements
from ..trace.operands import to_axes_of_operand, to_axis_of_operand, to_traced_array
from ..trace.tracer import Tracer
from .creation import arange
from .elementwise import apply
from .host_calls import host_call_of_one_result
from .joining import roll
from .views import cast

Length = Callable[[int], int]  # how many results `n` points give


def _transform_length_as_given(n: int) -> int:
    return n


def _half_spectrum_length(n: int) -> int:
    return n // 2 + 1


def _implement_fft_of_one_axis(name: str, given: Length, length: Length) -> None:
    """given: `n` where it is None, of the length of the axis."""

    def fft_along_axis(
        a: Any, n: int | None = None, axis: int = -1, norm: str | None = None, out: Any = None
    ) -> Tracer:
        x = to_traced_array(a)
        at = to_axis_of_operand(axis, x.ndim)
        points = given(x.shape[at]) if n is None else to_index(n, "n")
        if points < 1:
            raise ShapeError(f"Invalid number of FFT data points ({points}) specified.")
        shape = (*x.shape[:at], length(points), *x.shape[at + 1 :])
        tiny = [tuple(2 if i == at else 1 for i in range(x.ndim))]
        return host_call_of_one_result(f"fft.{name}", [x], shape, out, tiny=tiny, n=points, axis=at, norm=norm)

    fft_along_axis.__name__ = name
    implements(getattr(np.fft, name))(fft_along_axis)


for _name in ("fft", "ifft"):
    _implement_fft_of_one_axis(_name, _transform_length_as_given, _transform_length_as_given)
for _name in ("rfft", "ihfft"):
    _implement_fft_of_one_axis(_name, _transform_length_as_given, _half_spectrum_length)
for _name in ("irfft", "hfft"):
    _implement_fft_of_one_axis(_name, lambda m: 2 * (m - 1), _transform_length_as_given)


def _implement_fft_of_several_axes(
    name: str, axes_default: tuple[int, ...] | None, complex_last: bool, real_last: bool
) -> None:
    """complex_last: the last axis of the input is the half of a real transform; real_last: that of the result."""

    def fft_along_axes(
        a: Any, s: Any = None, axes: Any = axes_default, norm: str | None = None, out: Any = None
    ) -> Tracer:
        x = to_traced_array(a)
        if s is not None:
            s = tuple(to_index(n, "s") for n in s)
        if axes is None:
            where: tuple[int, ...] = tuple(range(x.ndim)) if s is None else tuple(range(x.ndim - len(s), x.ndim))
        else:
            where = tuple(to_axis_of_operand(i, x.ndim, "axes") for i in axes)
        if s is not None and len(s) != len(where):
            raise ShapeError("Shape and axes have different lengths.")
        lengths = list(x.shape)
        turns = list(enumerate(where))  # the order that NumPy takes the axes in, which matters where one comes twice
        for i, axis in turns if complex_last else reversed(turns):
            last = i == len(where) - 1
            whole = 2 * (x.shape[axis] - 1) if complex_last and last else x.shape[axis]
            points = whole if s is None else x.shape[axis] if s[i] == -1 else s[i]
            if points < 1:
                raise ShapeError(f"Invalid number of FFT data points ({points}) specified.")
            lengths[axis] = points // 2 + 1 if real_last and last else points
        tiny = [(2,) * x.ndim]
        return host_call_of_one_result(f"fft.{name}", [x], tuple(lengths), out, tiny=tiny, s=s, axes=where, norm=norm)

    fft_along_axes.__name__ = name
    implements(getattr(np.fft, name))(fft_along_axes)


for _name in ("fft2", "ifft2", "rfft2", "irfft2"):
    _implement_fft_of_several_axes(_name, (-2, -1), _name == "irfft2", _name == "rfft2")
for _name in ("fftn", "ifftn", "rfftn", "irfftn"):
    _implement_fft_of_several_axes(_name, None, _name == "irfftn", _name == "rfftn")


@implements(np.fft.fftshift)
def fftshift(x: Any, axes: Any = None) -> Tracer:
    """The zero frequency moved to the middle."""
    a = to_traced_array(x)
    where = to_axes_of_operand(axes, a.ndim)
    if not a.ndim:
        raise ShapeError("there is no axis to shift; pass an array of at least one")
    return roll(a, tuple(a.shape[i] // 2 for i in where), where)


@implements(np.fft.ifftshift)
def ifftshift(x: Any, axes: Any = None) -> Tracer:
    a = to_traced_array(x)
    where = to_axes_of_operand(axes, a.ndim)
    if not a.ndim:
        raise ShapeError("there is no axis to shift; pass an array of at least one")
    return roll(a, tuple(-(a.shape[i] // 2) for i in where), where)


@implements(np.fft.fftfreq)
def fftfreq(n: Any, d: Any = 1.0, device: Any = None, *, dtype: Any = None) -> Tracer:
    """0, 1, ..., -2, -1 times 1 / (n * d)."""
    points = to_index(n, "n")
    i = arange(points)
    signed = apply("where", apply("less", i, (points - 1) // 2 + 1), i, apply("subtract", i, points))
    return _frequencies_of_dtype(apply("multiply", signed, _frequency_step(points, d)), dtype)


@implements(np.fft.rfftfreq)
def rfftfreq(n: Any, d: Any = 1.0, device: Any = None, *, dtype: Any = None) -> Tracer:
    """0, 1, ..., n // 2 times 1 / (n * d)."""
    points = to_index(n, "n")
    return _frequencies_of_dtype(apply("multiply", arange(points // 2 + 1), _frequency_step(points, d)), dtype)


def _frequencies_of_dtype(x: Tracer, dtype: Any) -> Tracer:
    return x if dtype is None else cast(x, dtype)


def fft_frequencies_function(name: str) -> Callable[..., Any]:
    """np.fft.fftfreq or rfftfreq, and the Array API's `dtype`."""
    plain = getattr(np.fft, name)

    def fft_frequencies(n: int, d: float = 1.0, device: Any = None, *, dtype: Any = None) -> Any:
        found = plain(n, d)
        return found if dtype is None else found.astype(dtype)

    fft_frequencies.__doc__ = plain.__doc__
    return fft_frequencies


def _frequency_step(n: int, d: Any) -> Any:
    if isinstance(d, Tracer):
        return apply("divide", 1.0, apply("multiply", d, n))
    return 1.0 / (d * n)
