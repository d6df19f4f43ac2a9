"""`kg.nn`: layers of neural networks, each a few array operations that fuse. The same code serves traced values and
arrays. Images are (batch, channels, height, width). Of 16-bit floats results have the first argument's dtype."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from functools import reduce, wraps
from typing import Any

import numpy as np

from ...compiler.core.types import dtype_kind
from ...compiler.graph.precision import precision_attrs
from ...compiler.ops.table import OPS
from ..core.errors import DTypeError, ShapeError
from ..core.precision import precision as given_precision_of_calls
from ..core.spec import checked_dtype, to_index
from ..functions.creation import arange
from ..functions.elementwise import apply
from ..functions.host_calls import host_call_of_any_arrays
from ..trace.tracer import Tracer

Ints = tuple[int, ...]
Pair = tuple[int, int]


def _ints_of_axes(x: Any, what: str, count: int) -> Ints:
    given = x if isinstance(x, (tuple, list)) else (x,) * count
    if len(given) != count:
        raise ShapeError(f"{what}={x} has {len(given)} numbers for {count} axes")
    return tuple(to_index(n, what) for n in given)


def _pair_of_ints(x: Any, what: str) -> Pair:
    first, second = _ints_of_axes(x, what, 2)
    return first, second


def _nn_range_like(n: int, like: Any) -> Any:
    """0, 1, ..., n - 1: inside a trace no array, but the index of a kernel."""
    return arange(n) if isinstance(like, Tracer) else np.arange(n)


def _sigmoid(x: Any) -> Any:
    return apply("sigmoid", x) if isinstance(x, Tracer) else OPS["sigmoid"].numpy(x)  # type: ignore[misc]


def _in_float32(function: Callable[..., Any]) -> Callable[..., Any]:
    """Computes 16-bit floats in float32, in which their squares and sums do not overflow. The result has the first
    argument's dtype, as in other libraries, so that a network stays in it."""
    first = next(iter(inspect.signature(function).parameters))

    @wraps(function)
    def in_float32(*args: Any, **options: Any) -> Any:
        if not args and first in options:  # by name, maybe behind others
            args = (options.pop(first), *args)
        dtypes = [checked_dtype(x.dtype) for x in (*args, *options.values()) if hasattr(x, "dtype")]
        given = [dtype for dtype in dtypes if dtype_kind(dtype) == "f"]
        if all(dtype.itemsize > 2 for dtype in given):
            return function(*args, **options)
        result = function(*map(_widened_float, args), **{name: _widened_float(x) for name, x in options.items()})
        return result.astype(given[0])

    return in_float32


def _with_precision(function: Callable[..., Any]) -> Callable[..., Any]:
    """Takes `precision=`, see `kg.precision`, for the products inside."""

    @wraps(function)
    def with_precision(*args: Any, precision: str | None = None, **options: Any) -> Any:
        if precision is None:
            return function(*args, **options)
        with given_precision_of_calls(precision):
            return function(*args, **options)

    signature = inspect.signature(function)
    keyword = inspect.Parameter("precision", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Any)
    with_precision.__signature__ = signature.replace(parameters=[*signature.parameters.values(), keyword])  # type: ignore[attr-defined]
    return with_precision


def _is_half(x: Any) -> bool:
    return hasattr(x, "dtype") and dtype_kind(x.dtype) == "f" and x.dtype.itemsize == 2


def _widened_float(x: Any) -> Any:
    return x.astype(np.float32) if _is_half(x) else x


def _check_nn_image(x: Any, name: str) -> Any:
    if x.ndim != 4:
        raise ShapeError(f"{name} takes an array (batch, channels, height, width), not one of shape {x.shape}")
    return x


def _pooling_windows(x: Any, size: Pair, stride: Pair, dilation: Pair) -> list[Any]:
    """For each place in a window, row by row, the elements there: strided views of x."""
    if min(*size, *stride, *dilation) < 1:
        raise ShapeError(f"size={size}, stride={stride}, dilation={dilation}: all have to be > 0")
    lengths = [
        (n - step * (k - 1) - 1) // s + 1 for n, k, s, step in zip(x.shape[2:], size, stride, dilation, strict=True)
    ]
    if min(lengths) < 1:
        raise ShapeError(f"a window of {size[0]} x {size[1]} does not fit an image of {x.shape[2]} x {x.shape[3]}")

    def window_slice_along_axis(i: int, axis: int) -> slice:
        start = i * dilation[axis]
        return slice(start, start + stride[axis] * (lengths[axis] - 1) + 1, stride[axis])

    return [
        x[:, :, window_slice_along_axis(i, 0), window_slice_along_axis(j, 1)]
        for i in range(size[0])
        for j in range(size[1])
    ]


def _padded_image(x: Any, padding: Pair, value: Any) -> Any:
    if padding == (0, 0):
        return x
    return np.pad(x, ((0, 0), (0, 0), (padding[0],) * 2, (padding[1],) * 2), constant_values=value)


# convolution and pooling


@_with_precision
def conv1d(
    x: Any,
    weight: Any,
    bias: Any = None,
    *,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Any:
    """A convolution of signals (batch, channels, length) with weights, plus a bias. Options as of conv2d.

    Parameters
    ----------
    x : array_like
        An array.
    weight : array_like
        An array.
    bias : array_like, optional
        An array that is added, or None.
    stride : int, default 1
        The distance of neighbouring windows.
    padding : int, default 0
        Zeros at each side.
    dilation : int, default 1
        The distance of a window's elements.
    groups : int, default 1
        How many groups of channels.
    precision : optional
        What factors of float32 products may be rounded to, see `kg.precision`.

    Returns
    -------
    Array

    Raises
    ------
    TypeError
        For arrays of strings or objects (in a decorated function DTypeError).
    ValueError
        For shapes that do not fit (in a decorated function ShapeError).

    Examples
    --------
    >>> np.asarray(kg.nn.conv1d(np.array([[[1.0, 2.0, 4.0]]]), np.array([[[1.0, 1.0]]])))
    array([[[3., 6.]]])
    """
    return _convolution("conv1d", ("length",), x, weight, bias, stride, padding, dilation, groups)


@_with_precision
def conv2d(
    x: Any,
    weight: Any,
    bias: Any = None,
    *,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Any:
    """A convolution of images with weights, plus a bias. It is the sum over c, i, j of weight[o, c, i, j] * x[b, c, y *
    stride + i * dilation, ...], plus bias[o].

    Parameters
    ----------
    x : array_like
        (batch, channels, height, width), or without the batch.
    weight : array_like
        (out, channels / groups, kernel height, kernel width).
    bias : array_like, optional
        (out,).
    stride : int, default 1
        The distance of neighbouring windows.
    padding : int, default 0
        Zeros added on both sides, or `same` (with stride 1), or `valid`. Few products for each result are one
        kernel; else a CPU multiplies shifted rows of the image as they lie, and a GPU the windows, laid out as a
        matrix.
    dilation : int, default 1
        The distance of a window's elements.
    groups : int, default 1
        How many groups of channels.
    precision : optional
        What factors of float32 products may be rounded to, see `kg.precision`.

    Returns
    -------
    Array

    Raises
    ------
    ShapeError

    Examples
    --------
    >>> np.asarray(kg.nn.conv2d(np.arange(4.0).reshape(1, 1, 2, 2), np.ones((1, 1, 2, 2))))
    array([[[[6.]]]])
    """
    return _convolution("conv2d", ("height", "width"), x, weight, bias, stride, padding, dilation, groups)


@_with_precision
def conv3d(
    x: Any,
    weight: Any,
    bias: Any = None,
    *,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Any:
    """A convolution of volumes (batch, channels, depth, height, width) with weights, plus a bias. Options as of
    conv2d.

    Parameters
    ----------
    x : array_like
        An array.
    weight : array_like
        An array.
    bias : array_like, optional
        An array that is added, or None.
    stride : int, default 1
        The distance of neighbouring windows.
    padding : int, default 0
        Zeros at each side.
    dilation : int, default 1
        The distance of a window's elements.
    groups : int, default 1
        How many groups of channels.
    precision : optional
        What factors of float32 products may be rounded to, see `kg.precision`.

    Returns
    -------
    Array

    Raises
    ------
    TypeError
        For arrays of strings or objects (in a decorated function DTypeError).
    ValueError
        For shapes that do not fit (in a decorated function ShapeError).

    Examples
    --------
    >>> np.asarray(kg.nn.conv3d(np.ones((1, 1, 2, 2, 2)), np.ones((1, 1, 2, 2, 2)))).item()
    8.0
    """
    return _convolution("conv3d", ("depth", "height", "width"), x, weight, bias, stride, padding, dilation, groups)


@_with_precision
def conv_transpose1d(
    x: Any,
    weight: Any,
    bias: Any = None,
    *,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Any:
    """The transpose of conv1d: each element of x is spread by the weights.

    Parameters
    ----------
    x : array_like
        (batch, channels, length), or without the batch.
    weight : array_like
        (channels, out / groups, kernel length).
    bias : array_like, optional
        (out,).
    stride : int or sequence of int, default 1
        The distance in the result of what neighbouring elements are spread to.
    padding : int or sequence of int, default 0
        What is cut from both ends of the result.
    output_padding : int or sequence of int, default 0
        What the far end of the result's axis has more.
    groups : int, default 1
        How many groups of channels.
    dilation : int or sequence of int, default 1
        The distance of what one element is spread to.
    precision : optional
        What factors of float32 products may be rounded to, see `kg.precision`.

    Returns
    -------
    Array

    Raises
    ------
    ShapeError

    Examples
    --------
    >>> np.asarray(kg.nn.conv_transpose1d(np.array([[[1.0, 2.0]]]), np.array([[[1.0, 10.0]]])))
    array([[[ 1., 12., 20.]]])
    """
    return _transposed_convolution(
        "conv_transpose1d", ("length",), x, weight, bias, stride, padding, output_padding, groups, dilation
    )


@_with_precision
def conv_transpose2d(
    x: Any,
    weight: Any,
    bias: Any = None,
    *,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Any:
    """The transpose of conv2d: each element of x is spread by the weights.

    Parameters
    ----------
    x : array_like
        (batch, channels, height, width), or without the batch.
    weight : array_like
        (channels, out / groups, kernel height, kernel width).
    bias : array_like, optional
        (out,).
    stride : int or sequence of int, default 1
        The distance in the result of what neighbouring elements are spread to.
    padding : int or sequence of int, default 0
        What is cut from both ends of each axis of the result.
    output_padding : int or sequence of int, default 0
        What the far end of the result's axis has more.
    groups : int, default 1
        How many groups of channels.
    dilation : int or sequence of int, default 1
        The distance of what one element is spread to.
    precision : optional
        What factors of float32 products may be rounded to, see `kg.precision`.

    Returns
    -------
    Array

    Raises
    ------
    ShapeError

    Examples
    --------
    >>> np.asarray(kg.nn.conv_transpose2d(np.ones((1, 1, 1, 2)), np.ones((1, 1, 1, 2)), stride=2))
    array([[[[1., 1., 1., 1.]]]])
    """
    axes = ("height", "width")
    return _transposed_convolution(
        "conv_transpose2d", axes, x, weight, bias, stride, padding, output_padding, groups, dilation
    )


@_with_precision
def conv_transpose3d(
    x: Any,
    weight: Any,
    bias: Any = None,
    *,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Any:
    """The transpose of conv3d: each element of x is spread by the weights.

    Parameters
    ----------
    x : array_like
        (batch, channels, depth, height, width), or without the batch.
    weight : array_like
        (channels, out / groups, kernel depth, kernel height, kernel width).
    bias : array_like, optional
        (out,).
    stride : int or sequence of int, default 1
        The distance in the result of what neighbouring elements are spread to.
    padding : int or sequence of int, default 0
        What is cut from both ends of each axis of the result.
    output_padding : int or sequence of int, default 0
        What the far end of the result's axis has more.
    groups : int, default 1
        How many groups of channels.
    dilation : int or sequence of int, default 1
        The distance of what one element is spread to.
    precision : optional
        What factors of float32 products may be rounded to, see `kg.precision`.

    Returns
    -------
    Array

    Raises
    ------
    ShapeError

    Examples
    --------
    >>> np.asarray(kg.nn.conv_transpose3d(np.ones((1, 1, 1, 1, 1)), np.ones((1, 1, 1, 1, 2)))).tolist()
    [[[[[1.0, 1.0]]]]]
    """
    axes = ("depth", "height", "width")
    return _transposed_convolution(
        "conv_transpose3d", axes, x, weight, bias, stride, padding, output_padding, groups, dilation
    )


def _convolution(
    name: str,
    axes: tuple[str, ...],
    x: Any,
    weight: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
) -> Any:
    rank = len(axes)
    _check_convolved_arrays(name, x, weight, "out, channels / groups", axes)
    if x.ndim == rank + 1:
        return _convolution(name, axes, x[None], weight, bias, stride, padding, dilation, groups)[0]
    out, each, *size = weight.shape
    channels, groups = x.shape[1], to_index(groups, "groups")
    if groups < 1 or channels != each * groups or out % groups:
        raise ShapeError(f"a weight of shape {weight.shape} in {groups} groups does not fit {channels} channels")
    step, apart = _ints_of_axes(stride, "stride", rank), _ints_of_axes(dilation, "dilation", rank)
    around = _nn_padding_widths(padding, size, step, apart)
    if min(map(min, around)) < 0 or min(*step, *apart) < 1:
        raise ShapeError(
            f"padding={padding}, stride={stride}, dilation={dilation}: paddings are not negative, others > 0"
        )
    if any(map(any, around)):
        x = np.pad(x, ((0, 0), (0, 0), *around))
    lengths = [(n - d * (k - 1) - 1) // s + 1 for n, k, s, d in zip(x.shape[2:], size, step, apart, strict=True)]
    if min(lengths) < 1 or min(size) < 1:
        raise ShapeError(f"a window of {_by(size)} does not fit an image of {_by(x.shape[2:])}")
    options: dict[str, Any] = {"stride": step, "dilation": apart, "groups": groups, **dict(precision_attrs(x.dtype))}
    result = host_call_of_any_arrays("convolution", [x, weight], (x.shape[0], out, *lengths), **options)
    return _with_channel_bias(result, x, bias)


def _transposed_convolution(
    name: str,
    axes: tuple[str, ...],
    x: Any,
    weight: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    output_padding: Any,
    groups: int,
    dilation: Any,
) -> Any:
    rank = len(axes)
    _check_convolved_arrays(name, x, weight, "channels, out / groups", axes)
    if x.ndim == rank + 1:
        args = weight, bias, stride, padding, output_padding, groups, dilation
        return _transposed_convolution(name, axes, x[None], *args)[0]
    channels, each, *size = weight.shape
    groups = to_index(groups, "groups")
    if groups < 1 or channels != x.shape[1] or channels % groups:
        raise ShapeError(f"a weight of shape {weight.shape} in {groups} groups does not fit {x.shape[1]} channels")
    step, apart, cut, more = (
        _ints_of_axes(given, what, rank)
        for given, what in (
            (stride, "stride"), (dilation, "dilation"), (padding, "padding"), (output_padding, "output_padding"),
        )
    )  # fmt: skip
    if min(*cut, *more) < 0 or min(*step, *apart, *size) < 1:
        raise ShapeError(
            f"padding={padding}, output_padding={output_padding}, stride={stride}, dilation={dilation}: paddings are "
            "not negative, others > 0"
        )
    if any(m >= max(s, d) for m, s, d in zip(more, step, apart, strict=True)):
        raise ShapeError(f"output_padding={output_padding} is less than the stride or the dilation")
    whole = [(n - 1) * s + d * (k - 1) + 1 for n, k, s, d in zip(x.shape[2:], size, step, apart, strict=True)]
    ends = [n + m - c for n, c, m in zip(whole, cut, more, strict=True)]
    if min(x.shape[2:]) < 1 or any(end <= c for end, c in zip(ends, cut, strict=True)):
        raise ShapeError(f"padding={padding} leaves nothing of {_by(whole)}")
    options: dict[str, Any] = {"stride": step, "dilation": apart, "groups": groups, **dict(precision_attrs(x.dtype))}
    shape = (x.shape[0], each * groups, *whole)
    result = host_call_of_any_arrays("convolution_image", [x, weight], shape, shape=shape, **options)
    result = result[(..., *(slice(c, min(end, n)) for c, end, n in zip(cut, ends, whole, strict=True)))]
    beyond = [max(0, end - max(n, c)) for end, n, c in zip(ends, whole, cut, strict=True)]
    if any(beyond):
        result = np.pad(result, ((0, 0), (0, 0), *((0, n) for n in beyond)))
    return _with_channel_bias(result, x, bias)


def _check_convolved_arrays(name: str, x: Any, weight: Any, first: str, axes: tuple[str, ...]) -> None:
    rank = len(axes)
    for given, leading, ndims in ((x, "batch, channels", (rank + 1, rank + 2)), (weight, first, (rank + 2,))):
        if given.ndim not in ndims:
            raise ShapeError(f"{name} takes an array ({leading}, {', '.join(axes)}), not one of shape {given.shape}")


def _with_channel_bias(result: Any, x: Any, bias: Any) -> Any:
    """What a convolution of x gives, in its dtype of 16 bits."""
    result = result if bias is None else result + bias.reshape(1, -1, *(1,) * (x.ndim - 2))
    return result.astype(x.dtype) if _is_half(x) else result


def _by(lengths: Sequence[int]) -> str:
    return " x ".join(map(str, lengths))


def _nn_padding_widths(padding: Any, size: Sequence[int], stride: Sequence[int], dilation: Sequence[int]) -> list[Pair]:
    """Before and after, along each axis."""
    if padding == "valid":
        return [(0, 0)] * len(size)
    if padding == "same":
        if any(s != 1 for s in stride):
            raise ShapeError("padding='same' needs stride 1; pass the numbers")
        extents = [d * (k - 1) for k, d in zip(size, dilation, strict=True)]
        return [(e // 2, e - e // 2) for e in extents]
    return [(p, p) for p in _ints_of_axes(padding, "padding", len(size))]


def max_pool2d(x: Any, size: Any, *, stride: Any = None, padding: Any = 0, dilation: Any = 1) -> Any:
    """The largest element of each window; stride defaults to the window's size. NaN propagates.

    Parameters
    ----------
    x : array_like
        An array.
    size
        The size of the window, a number or one for each axis.
    stride : optional
        The distance of neighbouring windows.
    padding : int, default 0
        Zeros at each side.
    dilation : int, default 1
        The distance of a window's elements.

    Returns
    -------
    Array

    Raises
    ------
    TypeError
        For arrays of strings or objects (in a decorated function DTypeError).
    ValueError
        For shapes that do not fit (in a decorated function ShapeError).

    Examples
    --------
    >>> np.asarray(kg.nn.max_pool2d(np.arange(4.0).reshape(1, 1, 2, 2), 2))
    array([[[[3.]]]])
    """
    _check_nn_image(x, "max_pool2d")
    window, step, apart = (
        _pair_of_ints(size, "size"),
        _pair_of_ints(size if stride is None else stride, "stride"),
        _pair_of_ints(dilation, "dilation"),
    )
    lowest = -math.inf if x.dtype.kind not in "iu" else np.iinfo(x.dtype).min
    return reduce(
        np.maximum, _pooling_windows(_padded_image(x, _pool_padding(padding, window), lowest), window, step, apart)
    )


@_in_float32
def avg_pool2d(x: Any, size: Any, *, stride: Any = None, padding: Any = 0, count_include_pad: bool = True) -> Any:
    """The mean of each window; stride defaults to the window's size.

    Parameters
    ----------
    x : array_like
        An array.
    size
        The size of the window, a number or one for each axis.
    stride : optional
        The distance of neighbouring windows.
    padding : int, default 0
        Zeros at each side.
    count_include_pad : bool, default True
        Padded zeros count.

    Returns
    -------
    Array

    Raises
    ------
    TypeError
        For arrays of strings or objects (in a decorated function DTypeError).
    ValueError
        For shapes that do not fit (in a decorated function ShapeError).

    Examples
    --------
    >>> np.asarray(kg.nn.avg_pool2d(np.arange(4.0).reshape(1, 1, 2, 2), 2))
    array([[[[1.5]]]])
    """
    _check_nn_image(x, "avg_pool2d")
    window, step = _pair_of_ints(size, "size"), _pair_of_ints(size if stride is None else stride, "stride")
    around = _pool_padding(padding, window)
    total = reduce(np.add, _pooling_windows(_padded_image(x, around, 0), window, step, (1, 1)))
    if count_include_pad or around == (0, 0):
        return total / (window[0] * window[1])
    rows, columns = (
        _elements_inside_pooling_window(n, k, s, p)
        for n, k, s, p in zip(x.shape[2:], window, step, around, strict=True)
    )
    return total / (np.asarray(rows)[:, None] * np.asarray(columns)).astype(total.dtype)


def _pool_padding(padding: Any, window: Pair) -> Pair:
    around = _pair_of_ints(padding, "padding")
    if any(2 * p > k for p, k in zip(around, window, strict=True)):
        raise ShapeError(f"padding {around} is more than half of the window {window}")
    return around


def _elements_inside_pooling_window(n: int, size: int, stride: int, padding: int) -> list[int]:
    """How many elements of each window along one axis are the image's own."""
    starts = range(-padding, n + padding - size + 1, stride)
    return [min(s + size, n) - max(s, 0) for s in starts]


# normalisation


@_in_float32
def batch_norm(
    x: Any,
    mean: Any = None,
    var: Any = None,
    weight: Any = None,
    bias: Any = None,
    *,
    axis: int = 1,
    eps: float = 1e-5,
) -> Any:
    """(x - mean) / sqrt(var + eps) * weight + bias for each channel. Channels lie along `axis`; without mean and var
    those of the batch are taken (Ioffe and Szegedy, 2015).

    Parameters
    ----------
    x : array_like
        An array.
    mean : array_like, optional
        The mean of each channel.
    var : array_like, optional
        The var of each channel.
    weight : array_like, optional
        An array, or None.
    bias : array_like, optional
        An array that is added, or None.
    axis : int, default 1
        A dimension of the array.
    eps : float, default 1e-05
        What is added below the root.

    Returns
    -------
    Array

    Raises
    ------
    TypeError
        For arrays of strings or objects (in a decorated function DTypeError).
    ValueError
        For shapes that do not fit (in a decorated function ShapeError).

    Examples
    --------
    >>> np.asarray(kg.nn.batch_norm(np.array([[1.0], [3.0]]), eps=0.0))
    array([[-1.],
           [ 1.]])
    """
    at = axis % x.ndim
    others = tuple(i for i in range(x.ndim) if i != at)

    def broadcast_over_batch(a: Any) -> Any:
        return a.reshape(tuple(-1 if i == at else 1 for i in range(x.ndim)))

    centre = np.mean(x, others, keepdims=True) if mean is None else broadcast_over_batch(mean)
    spread = np.var(x, others, keepdims=True) if var is None else broadcast_over_batch(var)
    return _scaled_and_shifted_in_layer((x - centre) / np.sqrt(spread + eps), weight, bias, broadcast_over_batch)


@_in_float32
def layer_norm(x: Any, weight: Any = None, bias: Any = None, *, axis: Any = -1, eps: float = 1e-5) -> Any:
    """(x - mean) / sqrt(var + eps) * weight + bias. The mean and variance are over `axis` (Ba, Kiros and Hinton,
    2016).

    Parameters
    ----------
    x : array_like
        An array.
    weight : array_like, optional
        An array, or None.
    bias : array_like, optional
        An array that is added, or None.
    axis : int, default -1
        A dimension of the array.
    eps : float, default 1e-05
        What is added below the root.

    Returns
    -------
    Array

    Raises
    ------
    TypeError
        For arrays of strings or objects (in a decorated function DTypeError).
    ValueError
        For shapes that do not fit (in a decorated function ShapeError).

    Examples
    --------
    >>> np.asarray(kg.nn.layer_norm(np.array([1.0, 3.0]), eps=0.0))
    array([-1.,  1.])
    """
    centred = x - np.mean(x, axis, keepdims=True)
    spread = np.mean(centred * centred, axis, keepdims=True)
    return _scaled_and_shifted_in_layer(centred / np.sqrt(spread + eps), weight, bias)


@_in_float32
def group_norm(x: Any, groups: int, weight: Any = None, bias: Any = None, *, eps: float = 1e-5) -> Any:
    """Layer norm over each group of channels and all places (Wu and He, 2018).

    Parameters
    ----------
    x : array_like
        An array.
    groups : int
        How many groups of channels.
    weight : array_like, optional
        An array, or None.
    bias : array_like, optional
        An array that is added, or None.
    eps : float, default 1e-05
        What is added below the root.

    Returns
    -------
    Array

    Raises
    ------
    TypeError
        For arrays of strings or objects (in a decorated function DTypeError).
    ValueError
        For shapes that do not fit (in a decorated function ShapeError).

    Examples
    --------
    >>> np.asarray(kg.nn.group_norm(np.array([[1.0, 3.0]]), 1, eps=0.0))
    array([[-1.,  1.]])
    """
    n, channels = x.shape[:2]
    if channels % groups:
        raise ShapeError(f"{channels} channels do not make {groups} groups")
    parts = layer_norm(x.reshape(n, groups, -1), eps=eps).reshape(x.shape)
    return _scaled_and_shifted_in_layer(parts, weight, bias, lambda a: a.reshape(1, channels, *(1,) * (x.ndim - 2)))


@_in_float32
def rms_norm(x: Any, weight: Any = None, *, axis: Any = -1, eps: float = 1e-6) -> Any:
    """x / sqrt(mean(x^2) + eps) * weight (Zhang and Sennrich, 2019).

    Parameters
    ----------
    x : array_like
        An array.
    weight : array_like, optional
        An array, or None.
    axis : int, default -1
        A dimension of the array.
    eps : float, default 1e-06
        What is added below the root.

    Returns
    -------
    Array

    Raises
    ------
    TypeError
        For arrays of strings or objects (in a decorated function DTypeError).
    ValueError
        For shapes that do not fit (in a decorated function ShapeError).

    Examples
    --------
    >>> np.asarray(kg.nn.rms_norm(np.array([2.0, -2.0]), eps=0.0))
    array([ 1., -1.])
    """
    return _scaled_and_shifted_in_layer(x / np.sqrt(np.mean(x * x, axis, keepdims=True) + eps), weight, None)


def _scaled_and_shifted_in_layer(x: Any, weight: Any, bias: Any, wide: Callable[[Any], Any] = lambda a: a) -> Any:
    x = x if weight is None else x * wide(weight)
    return x if bias is None else x + wide(bias)


# probabilities


def _largest_as_constant(x: Any, axis: Any) -> Any:
    """The maximum, as a constant of derivatives: it is subtracted and cancels out."""
    largest = np.max(x, axis=axis, keepdims=True)
    return apply("stop_gradient", largest) if isinstance(largest, Tracer) else largest


@_in_float32
def logsumexp(x: Any, axis: Any = -1, keepdims: bool = False) -> Any:
    """log(sum(exp(x))) without overflow; -inf where every element is.

    Parameters
    ----------
    x : array_like
        An array.
    axis : int, default -1
        A dimension of the array.
    keepdims : bool, default False
        Whether the dimensions that are reduced stay, with length 1.

    Returns
    -------
    Array

    Raises
    ------
    TypeError
        For arrays of strings or objects (in a decorated function DTypeError).
    ValueError
        For shapes that do not fit (in a decorated function ShapeError).

    Examples
    --------
    >>> float(kg.nn.logsumexp(np.array([1000.0, 1000.0])).round(3))
    1000.693
    """
    largest = _largest_as_constant(x, axis)
    safe = np.where(np.isfinite(largest), largest, 0)
    total = np.sum(np.exp(x - safe), axis=axis, keepdims=True)
    total = np.where(total == 0, -math.inf, np.log(total)) + safe  # of nothing but -inf, nothing comes back
    return total if keepdims else np.squeeze(total, axis if axis is not None else tuple(range(x.ndim)))


@_in_float32
def softmax(x: Any, axis: Any = -1) -> Any:
    """exp(x) / sum(exp(x)) without overflow.

    Parameters
    ----------
    x : array_like
        An array.
    axis : int, default -1
        A dimension of the array.

    Returns
    -------
    Array

    Raises
    ------
    TypeError
        For arrays of strings or objects (in a decorated function DTypeError).
    ValueError
        For shapes that do not fit (in a decorated function ShapeError).

    Examples
    --------
    >>> np.asarray(kg.nn.softmax(np.zeros(4)))
    array([0.25, 0.25, 0.25, 0.25])
    """
    powers = np.exp(x - _largest_as_constant(x, axis))
    return powers / np.sum(powers, axis=axis, keepdims=True)


@_in_float32
def log_softmax(x: Any, axis: Any = -1) -> Any:
    """log(softmax(x)) without its underflow.

    Parameters
    ----------
    x : array_like
        An array.
    axis : int, default -1
        A dimension of the array.

    Returns
    -------
    Array

    Raises
    ------
    TypeError
        For arrays of strings or objects (in a decorated function DTypeError).
    ValueError
        For shapes that do not fit (in a decorated function ShapeError).

    Examples
    --------
    >>> np.asarray(kg.nn.log_softmax(np.zeros(2))).round(3)
    array([-0.693, -0.693])
    """
    shifted = x - _largest_as_constant(x, axis)
    return shifted - np.log(np.sum(np.exp(shifted), axis=axis, keepdims=True))


def one_hot(labels: Any, classes: int, *, dtype: Any = np.float32) -> Any:
    """1 at each label along a new last axis, else 0.

    Parameters
    ----------
    labels : array_like
        Integers.
    classes : int
        How many there are.
    dtype : optional
        A dtype, as NumPy takes it.

    Returns
    -------
    Array

    Raises
    ------
    TypeError
        For arrays of strings or objects (in a decorated function DTypeError).
    ValueError
        For shapes that do not fit (in a decorated function ShapeError).

    Examples
    --------
    >>> np.asarray(kg.nn.one_hot(np.array([0, 2]), 3))
    array([[1., 0., 0.],
           [0., 0., 1.]], dtype=float32)
    """
    return (labels[..., None] == _nn_range_like(to_index(classes, "classes"), labels)).astype(dtype)


@_in_float32
def cross_entropy(logits: Any, labels: Any, *, axis: int = -1, reduction: str = "mean") -> Any:
    """-log softmax(logits) at the labels. Labels are integers in [0, classes), without the axis of the classes, or
    probabilities of the logits' own shape. Labels outside of that range count for nothing, in the mean too.

    Parameters
    ----------
    logits : array_like
        An array of a row for each label.
    labels : array_like
        Integers.
    axis : int, default -1
        A dimension of the array.
    reduction : str, default 'mean'
        `mean`, `sum` or `none`.

    Returns
    -------
    Array

    Raises
    ------
    ShapeError

    Examples
    --------
    >>> float(kg.nn.cross_entropy(np.zeros((1, 2)), np.array([1])).round(4))
    0.6931
    """
    if reduction not in ("mean", "sum", "none"):
        raise ShapeError(f"reduction={reduction!r} is none of 'mean', 'sum', 'none'")
    logs = np.moveaxis(log_softmax(logits, axis), axis, -1)
    if labels.shape == logits.shape and labels.dtype.kind not in "iu":
        losses = -np.sum(logs * np.moveaxis(labels, axis, -1), axis=-1)
        count: Any = max(losses.size, 1)
    else:
        if labels.shape != logs.shape[:-1]:
            raise ShapeError(f"labels of shape {labels.shape} do not fit logits of shape {logits.shape}")
        chosen = labels[..., None] == _nn_range_like(logs.shape[-1], logs)
        losses = -np.sum(np.where(chosen, logs, 0), axis=-1)
        count = np.count_nonzero((labels >= 0) & (labels < logs.shape[-1])) if reduction == "mean" else None
    if reduction == "none":
        return losses
    total = np.sum(losses)
    return total if reduction == "sum" else (total / count).astype(total.dtype)


# attention and activations


@_with_precision
@_in_float32
def linear(x: Any, weight: Any, bias: Any = None) -> Any:
    """x @ weight.T + bias.

    Parameters
    ----------
    x : array_like
        An array.
    weight : array_like
        An array.
    bias : array_like, optional
        An array that is added, or None.
    precision : optional
        What factors of float32 products may be rounded to, see `kg.precision`.

    Returns
    -------
    Array

    Raises
    ------
    TypeError
        For arrays of strings or objects (in a decorated function DTypeError).
    ValueError
        For shapes that do not fit (in a decorated function ShapeError).

    Examples
    --------
    >>> np.asarray(kg.nn.linear(np.array([1.0, 2.0]), np.array([[3.0, 4.0]]), np.array([0.5])))
    array([11.5])
    """
    return _scaled_and_shifted_in_layer(np.matmul(x, np.swapaxes(weight, -1, -2)), None, bias)


@_with_precision
@_in_float32
def attention(q: Any, k: Any, v: Any, mask: Any = None, *, causal: bool = False, scale: Any = None) -> Any:
    """softmax(q @ k.T * scale) @ v. `scale` is 1 / sqrt(last axis) by default (Vaswani et al., 2017).

    Parameters
    ----------
    q : array_like
        Queries, an array.
    k : array_like
        Keys, an array.
    v : array_like
        Values, an array.
    mask : optional
        Booleans, False where a query may not look, or floats that are added to the scores.
    causal : bool, default False
        Each query sees the keys up to its own place.
    scale : optional
        What the products are multiplied by.
    precision : optional
        What factors of float32 products may be rounded to, see `kg.precision`.

    Returns
    -------
    Array

    Raises
    ------
    DTypeError
    ShapeError

    Examples
    --------
    >>> q = np.eye(2)[None]
    >>> np.asarray(kg.nn.attention(q, q, q, scale=0.0))
    array([[[0.5, 0.5],
            [0.5, 0.5]]])
    """
    if scale is None and not q.shape[-1]:
        raise ShapeError(f"attention divides by the root of the last axis, which is 0 in {q.shape}; give it a scale")
    scores = np.matmul(q, np.swapaxes(k, -1, -2)) * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    allowed = mask if mask is None or hasattr(mask, "dtype") else np.asarray(mask)
    kind = "b" if allowed is None else dtype_kind(allowed.dtype)
    if kind == "f":
        scores, allowed = scores + allowed, None
    elif kind != "b":
        raise DTypeError("a mask of attention is of booleans, or of floats that are added; write mask != 0")
    if causal:
        rows, columns = scores.shape[-2:]
        below = _nn_range_like(columns, q) <= _nn_range_like(rows, q)[:, None]
        allowed = below if allowed is None else allowed & below
    if allowed is not None:
        scores = np.where(allowed, scores, -math.inf)
    return np.matmul(softmax(scores), v)


def silu(x: Any) -> Any:
    """x / (1 + exp(-x))

    Parameters
    ----------
    x : array_like
        An array.

    Returns
    -------
    Array

    Raises
    ------
    TypeError
        For arrays of strings or objects (in a decorated function DTypeError).
    ValueError
        For shapes that do not fit (in a decorated function ShapeError).

    Examples
    --------
    >>> np.asarray(kg.nn.silu(np.array([-1.0, 2.0]))).round(3)
    array([-0.269,  1.762])
    """
    return x * _sigmoid(x)


def softplus(x: Any) -> Any:
    """log(1 + exp(x)) without overflow.

    Parameters
    ----------
    x : array_like
        An array.

    Returns
    -------
    Array

    Raises
    ------
    TypeError
        For arrays of strings or objects (in a decorated function DTypeError).
    ValueError
        For shapes that do not fit (in a decorated function ShapeError).

    Examples
    --------
    >>> np.asarray(kg.nn.softplus(np.array([0.0, 10.0]))).round(3)
    array([ 0.693, 10.   ])
    """
    return np.logaddexp(x, 0)


def leaky_relu(x: Any, slope: Any = 0.01) -> Any:
    """x where positive, else slope * x.

    Parameters
    ----------
    x : array_like
        An array.
    slope : float, default 0.01
        The slope of the negative side.

    Returns
    -------
    Array

    Raises
    ------
    TypeError
        For arrays of strings or objects (in a decorated function DTypeError).
    ValueError
        For shapes that do not fit (in a decorated function ShapeError).

    Examples
    --------
    >>> np.asarray(kg.nn.leaky_relu(np.array([-1.0, 2.0])))
    array([-0.01,  2.  ])
    """
    return np.where(x > 0, x, x * slope)


def elu(x: Any, alpha: Any = 1.0) -> Any:
    """x where positive, else alpha * (exp(x) - 1).

    Parameters
    ----------
    x : array_like
        An array.
    alpha : float, default 1.0
        What the negative side tends to.

    Returns
    -------
    Array

    Raises
    ------
    TypeError
        For arrays of strings or objects (in a decorated function DTypeError).
    ValueError
        For shapes that do not fit (in a decorated function ShapeError).

    Examples
    --------
    >>> np.asarray(kg.nn.elu(np.array([-1.0, 2.0]))).round(3)
    array([-0.632,  2.   ])
    """
    return np.where(x > 0, x, alpha * np.expm1(np.where(x > 0, 0, x)))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    f.__name__: f
    for f in (
        conv1d,
        conv2d,
        conv3d,
        conv_transpose1d,
        conv_transpose2d,
        conv_transpose3d,
        max_pool2d,
        avg_pool2d,
        batch_norm,
        layer_norm,
        group_norm,
        rms_norm,
        logsumexp,
        softmax,
        log_softmax,
        one_hot,
        cross_entropy,
        linear,
        attention,
        silu,
        softplus,
        leaky_relu,
        elu,
    )
}
SHARED = ("relu", "gelu", "sigmoid", "tanh")  # rows of the op table, which `kg.*` has as well
