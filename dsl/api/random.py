"""`kg.random`: random arrays from a key, a shape and nothing else, made inside the kernels that use them.

Block b of Philox4x32-10 under the key is four words of 32 random bits. A distribution that needs n words an element
(1, 2 or 4) gives element i, in C order, words n * i, n * i + 1, ... of the blocks laid end to end. So a result depends
on the key, the distribution and the place alone, not on streams, threads, fusion or chunks; bits, uniforms, integers
and booleans are the same on every device.

Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...compiler.core.types import DTYPES, FLOAT32, FLOAT64, UINT64, DType
from ...compiler.ops.philox import philox_reference
from ...runtime.core.frozen import frozen
from ..array.array import Array
from ..array.conversion import device_of_arguments
from ..array.devices import device_named, name_of, open_device
from ..core.context import context
from ..core.errors import DTypeError, NumberError, ShapeError, user_frames
from ..core.spec import checked_dtype
from ..functions.creation import full
from ..functions.elementwise import apply
from ..functions.selection import take
from ..functions.views import cast
from ..trace.operands import new_traced_result, to_traced_array, to_traced_shape, trace_of_operands, traced_length
from ..trace.trace import current_trace
from ..trace.tracer import TracedNumber, Tracer

Shape = int | Sequence[int]

UINT32 = DTYPES["u32"]
WORD = 0xFFFFFFFF
DRAW, FOLD, SPLIT = 0, 1, 2  # the last word of the counter: blocks for arrays, and for keys made from keys


# keys


@frozen
class Key:
    """64 bits that decide everything drawn from it: two words in [0, 2**32). Draw once from a key; for more, `split`.

    Plain data: an argument or a result of a traced function, where a new key compiles nothing.

    Examples
    --------
    >>> key = kg.random.key(7)
    >>> (key.low, key.high), key.fold_in(1) == key.fold_in(2)
    ((7, 0), False)
    """

    low: Any
    high: Any

    def fold_in(self, number: Any) -> Key:
        """Another key for each integer (mod 2**64): a step, a layer, a worker.

        Raises
        ------
        DTypeError
        """
        return _random_key_folded_with(self, number, FOLD)


def key(seed: Any) -> Key:
    """The key of an integer (mod 2**64); inside a trace it may be an argument.

    Parameters
    ----------
    seed
        An integer.

    Returns
    -------
    Key

    Raises
    ------
    DTypeError

    Examples
    --------
    >>> kg.random.key(7)
    Key(low=7, high=0)
    """
    return Key(*_random_words_of_integer(_random_integer_argument(seed, "a seed")))


def split(key: Key, n: int = 2) -> tuple[Key, ...]:
    """`n` keys that have nothing to do with each other. Nor have they with `key` or with its `fold_in`s.

    Parameters
    ----------
    key : Key
        A key of `kg.random`.
    n : int, default 2
        How many.

    Returns
    -------
    tuple of Key

    Raises
    ------
    DTypeError

    Examples
    --------
    >>> first, second = kg.random.split(kg.random.key(7))
    >>> first == second
    False
    """
    return tuple(_random_key_folded_with(key, i, SPLIT) for i in range(operator.index(n)))


def _random_integer_argument(x: Any, what: str) -> Any:
    """A Python int, or a traced integer."""
    if isinstance(x, (np.ndarray, Array)) and current_trace() is not None:
        x = to_traced_array(x)
    if type(x) is TracedNumber and isinstance(x, int):
        return x
    if isinstance(x, Tracer):
        if x.shape or x.dtype.kind not in "iu":
            raise DTypeError(f"{what} must be one integer, not {x._value.type}")
        return x
    try:
        return operator.index(x)
    except TypeError:
        raise DTypeError(f"{what} must be an integer, not {x!r}") from None


def _random_words_of_integer(x: Any) -> tuple[Any, Any]:
    """The low and high word of an integer."""
    if isinstance(x, Tracer):
        wide = cast(x, UINT64)
        return cast(wide, UINT32), cast(apply("right_shift", wide, np.uint64(32)), UINT32)
    return x & WORD, (x >> 32) & WORD


def _random_key_folded_with(key: Key, number: Any, purpose: int) -> Key:
    parts = (
        *_random_words_of_integer(_random_integer_argument(number, "a number to fold in")),
        *_words_of_random_key(key),
    )
    if any(isinstance(p, (Tracer, TracedNumber)) for p in parts):
        return Key(*_random_philox_block(parts[0], parts[1], purpose, parts[2:], (0, 1)))
    block = (*parts[:2], 0, purpose, *parts[2:])
    return Key(*(int(philox_reference(*block, word=word)) for word in (0, 1)))


def _words_of_random_key(key: Any) -> tuple[Any, Any]:
    if not isinstance(key, Key):
        raise DTypeError(f"{key!r} is no key; write kg.random.key(seed)")
    return _random_integer_argument(key.low, "a word of a key"), _random_integer_argument(key.high, "a word of a key")


# words


def _traced_uint32_word(x: Any) -> Tracer:
    """One word as a traced uint32; known ones are arguments of the kernels, whose text serves all keys."""
    return cast(to_traced_array(traced_length(trace_of_operands(), x) if type(x) is int else x), UINT32)


def _random_philox_block(low: Any, high: Any, purpose: int, key: Sequence[Any], words: Sequence[int]) -> list[Tracer]:
    counter = _traced_uint32_word(low), _traced_uint32_word(high), np.uint32(0), np.uint32(purpose)
    key = [_traced_uint32_word(k) for k in key]
    return [apply("philox", *counter, *key, word=word) for word in words]


def _draw_random_words(key: Key, shape: Shape, count: int) -> list[Tracer]:
    """`count` (1, 2 or 4) words for each element. Neighbours that share a block compute it once where one thread of a
    GPU has them all."""
    sizes = to_traced_shape(shape)
    if any(n < 0 for n in sizes):
        raise ShapeError(f"shape {sizes} has a negative length")
    each = 4 // count
    block, turn = _random_block_and_lane(sizes, each)
    high = 0 if block.dtype == UINT32 else apply("right_shift", block, np.uint64(32))
    words = _random_philox_block(block, high, DRAW, _words_of_random_key(key), range(4))
    parts = [words[i * count :][:count] for i in range(each)]
    bit = 1
    while len(parts) > 1:
        odd = apply("not_equal", apply("bitwise_and", turn, bit), 0)
        pairs = zip(parts[::2], parts[1::2], strict=True)
        parts = [[apply("where", odd, y, x) for x, y in zip(a, b, strict=True)] for a, b in pairs]
        bit *= 2
    return parts[0]


def _random_block_and_lane(sizes: tuple[int, ...], each: int) -> tuple[Tracer, Tracer]:
    """i // each and i % each of every element i, in C order."""
    trace, dtype = trace_of_operands(), UINT32 if math.prod(sizes) <= 1 << 32 else UINT64
    moving = [axis for axis, n in enumerate(sizes) if n != 1]
    if not moving:
        zero = full(sizes, 0, dtype)
        return zero, zero
    *outer, inner = (cast(new_traced_result(trace.builder.index(sizes, axis)), dtype) for axis in moving)
    step = sizes[moving[-1]]
    whole = step % each == 0 or not outer  # each row starts with a block of its own: its number need not be divided
    block, rest = (_random_block_numbers(inner, each), step // each) if whole else (inner, step)
    for axis, along in zip(reversed(moving[:-1]), reversed(outer), strict=True):
        block = apply("add", block, apply("multiply", along, traced_length(trace, rest)))
        rest *= sizes[axis]
    turn = apply("bitwise_and", inner if whole else block, each - 1)
    return block if whole else _random_block_numbers(block, each), turn


def _random_block_numbers(x: Tracer, each: int) -> Tracer:
    """x // each. What a compiler finds to be the same for neighbours is what the rest is taken from."""
    if each == 1:
        return x
    return apply("right_shift", apply("subtract", x, apply("bitwise_and", x, each - 1)), each.bit_length() - 1)


def _random_uint64_of_words(low: Tracer, high: Tracer) -> Tracer:
    """64 bits of two words."""
    return apply("bitwise_or", cast(low, UINT64), apply("left_shift", cast(high, UINT64), np.uint64(32)))


def _random_bits_of_dtype(key: Key, shape: Shape, dtype: DType, count: int = 1) -> list[Tracer]:
    """`count` unsigned integers as large as the dtype for each element."""
    n = dtype.itemsize // 4
    words = _draw_random_words(key, shape, n * count)
    return words if n == 1 else [_random_uint64_of_words(*words[i : i + 2]) for i in range(0, len(words), 2)]


def _checked_random_float_dtype(dtype: Any) -> DType:
    return _check_random_dtype_among(dtype, (FLOAT32, FLOAT64))


def _check_random_dtype_among(dtype: Any, allowed: tuple[DType, ...]) -> DType:
    wanted = checked_dtype(dtype)
    if wanted not in allowed:
        names = " or ".join(map(str, allowed))
        raise DTypeError(f"random numbers of this kind are {names}, not {wanted}; convert them with x.astype(...)")
    return wanted


def _uniform_in_unit_interval(key: Key, shape: Shape, dtype: DType) -> Tracer:
    """Multiples of 2**-24 or 2**-53 in [0, 1), all equally likely."""
    (drawn,) = _random_bits_of_dtype(key, shape, dtype)
    digits, size = np.finfo(dtype).nmant + 1, 8 * dtype.itemsize
    return apply("multiply", cast(apply("right_shift", drawn, size - digits), dtype), 0.5**digits)


def _positive_uniform_from_bits(drawn: Tracer, dtype: DType) -> Tracer:
    """Uniform in (0, 1], with as many bits near 0 as the integer has: what a logarithm is taken of."""
    size = 8 * dtype.itemsize
    return apply("add", apply("multiply", cast(drawn, dtype), 0.5**size), 0.5 ** (size + 1))


# distributions


def bits(key: Key, shape: Shape = (), dtype: Any = np.uint32) -> Tracer:
    """Random bits as uint32 or uint64.

    Parameters
    ----------
    key : Key
        A key of `kg.random`.
    shape : default ()
        The shape of the result.
    dtype : optional
        A dtype, as NumPy takes it.

    Returns
    -------
    Array

    Raises
    ------
    DTypeError
    ShapeError

    Examples
    --------
    >>> kg.random.bits(kg.random.key(7), (2, 3)).dtype
    dtype('uint32')
    """
    return _random_bits_of_dtype(key, shape, _check_random_dtype_among(dtype, (UINT32, UINT64)))[0]


def uniform(key: Key, shape: Shape = (), dtype: Any = np.float32, low: Any = 0, high: Any = 1) -> Tracer:
    """float32 or float64 numbers in [low, high), where low and high broadcast to the shape.

    Multiples of 2**-24 (2**-53) in [0, 1); other bounds are low + (high - low) * u, which may round up to high.

    Parameters
    ----------
    key : Key
        A key of `kg.random`.
    shape : default ()
        The shape of the result.
    dtype : optional
        A dtype, as NumPy takes it.
    low : int, default 0
        The lower end.
    high : int, default 1
        The upper end, which is not reached.

    Returns
    -------
    Array

    Raises
    ------
    DTypeError
    ShapeError

    Examples
    --------
    >>> x = np.asarray(kg.random.uniform(kg.random.key(7), 1000))
    >>> bool(0 <= x.min() < x.max() < 1)
    True
    """
    wanted = _checked_random_float_dtype(dtype)
    unit = _uniform_in_unit_interval(key, shape, wanted)
    if type(low) in (int, float) and type(high) in (int, float) and (low, high) == (0, 1):
        return unit
    low, high = _random_bound_in_dtype(low, wanted), _random_bound_in_dtype(high, wanted)
    return _sample_of_drawn_shape(apply("add", apply("multiply", unit, high - low), low), unit)


def _random_bound_in_dtype(x: Any, dtype: DType) -> Any:
    return x if isinstance(x, (int, float)) and not isinstance(x, np.generic) else cast(to_traced_array(x), dtype)


def _sample_of_drawn_shape(result: Tracer, drawn: Tracer) -> Tracer:
    """The result, which arguments must not have made larger than what was drawn."""
    if result.shape != drawn.shape:
        raise ShapeError(f"the arguments make shape {result.shape} of {drawn.shape}; write shape={result.shape}")
    return result


def integers(key: Key, shape: Shape, low: Any, high: Any, dtype: Any = np.int64) -> Tracer:
    """Integers in [low, high). Array bounds broadcast to the shape, and must have low < high everywhere.

    The upper half of a 64-bit number times the span (Lemire, "Fast random integer generation in an interval", 2019,
    without rejection): no integer is likelier than another by more than (high - low) / 2**64 of its chance.

    Parameters
    ----------
    key : Key
        A key of `kg.random`.
    shape
        The shape of the result.
    low
        The lower end.
    high
        The upper end, which is not reached.
    dtype : optional
        A dtype, as NumPy takes it.

    Returns
    -------
    Array

    Raises
    ------
    DTypeError
        Where the dtype cannot hold the bounds, ShapeError where low is not below high.
    NumberError
        Where the dtype cannot hold the bounds, ShapeError where low is not below high.

    Examples
    --------
    >>> sorted(set(np.asarray(kg.random.integers(kg.random.key(7), 100, 1, 7)).tolist()))
    [1, 2, 3, 4, 5, 6]
    """
    wanted = checked_dtype(dtype)
    if wanted.kind not in "iu":
        raise DTypeError(f"random integers have an integer dtype, not {wanted}; convert them with x.astype(...)")
    head, tail = _draw_random_words(key, shape, 2)
    scalar = all(isinstance(x, (int, np.integer)) and not isinstance(x, Tracer) for x in (low, high))
    first, span = (
        _low_and_span_of_random_interval(low, high, wanted) if scalar else _low_and_span_of_random_intervals(low, high)
    )
    return _sample_of_drawn_shape(
        cast(apply("add", _random_bits_scaled_to_span(head, tail, span), first), wanted), head
    )


def _random_bits_scaled_to_span(low: Tracer, high: Tracer, span: Any) -> Tracer:
    """The upper half of two words times the span: a uint64, a uint32 (which is cheaper), or None for 2**64."""
    if span is None:
        return _random_uint64_of_words(low, high)
    if span.dtype == UINT64:
        return apply("multiply_high", _random_uint64_of_words(low, high), span)
    wide = cast(to_traced_array(span), UINT64)
    carry = cast(apply("multiply_high", low, span), UINT64)
    total = apply("add", apply("multiply", cast(high, UINT64), wide), carry)  # at most (2**32 - 1) * 2**32
    return apply("right_shift", total, np.uint64(32))


def _low_and_span_of_random_interval(low: Any, high: Any, dtype: DType) -> tuple[Any, Any]:
    """low as uint64, and the span high - low as `_random_bits_scaled_to_span` takes it."""
    low, high = (x if type(x) is TracedNumber else int(x) for x in (low, high))
    info, span = np.iinfo(dtype), high - low
    if not _check_random_bound_at_least(span, 1):
        raise ShapeError(f"there are no integers in [{low}, {high}); low must be less than high")
    if not (
        _check_random_bound_at_least(low, int(info.min)) and _check_random_bound_at_least(int(info.max) + 1 - high, 0)
    ):
        raise NumberError(f"{dtype} does not hold all integers in [{low}, {high}); write dtype=np.int64, or np.uint64")
    _check_random_bound_at_least(WORD - span, 0)  # a longer span is taken by value
    first = (
        _random_uint64_of_words(*map(_traced_uint32_word, _random_words_of_integer(low)))
        if type(low) is TracedNumber
        else np.uint64(low % 2**64)
    )
    if type(span) is TracedNumber:
        return first, _traced_uint32_word(span)
    return first, np.uint32(span) if span <= WORD else np.uint64(span) if span < 2**64 else None


def _check_random_bound_at_least(x: Any, bound: int) -> bool:
    """x >= bound; of a number of the call a condition for the trace, which starts again where it does not hold."""
    if type(x) is not TracedNumber:
        return bool(x >= bound)
    if x._number < bound:
        raise x._need_number_value()
    trace_of_operands(x).checks.append(f"{x._name} >= {bound}")
    return True


def _low_and_span_of_random_intervals(low: Any, high: Any) -> tuple[Tracer, Tracer]:
    first, last = to_traced_array(low), to_traced_array(high)
    for x in (first, last):
        if x.dtype.kind not in "iu":
            raise DTypeError(f"the bounds of random integers must be integers, not {x.dtype}")
    first, last = cast(first, UINT64), cast(last, UINT64)
    return first, apply("subtract", last, first)


def normal(key: Key, shape: Shape = (), dtype: Any = np.float32) -> Tracer:
    """Normally distributed numbers of mean 0 and variance 1. They are float32 (to 6.7 sigma) or float64 (to 9.4 sigma).

    sqrt(-2 log u) cos(2 pi v): Box and Muller, "A note on the generation of random normal deviates" (1958).

    Parameters
    ----------
    key : Key
        A key of `kg.random`.
    shape : default ()
        The shape of the result.
    dtype : optional
        A dtype, as NumPy takes it.

    Returns
    -------
    Array

    Raises
    ------
    DTypeError
    ShapeError

    Examples
    --------
    >>> x = np.asarray(kg.random.normal(kg.random.key(7), 1000))
    >>> bool(abs(x.mean()) < 0.2)
    True
    """
    wanted = _checked_random_float_dtype(dtype)
    first, second = _random_bits_of_dtype(key, shape, wanted, 2)
    radius = apply(
        "sqrt", apply("absolute", apply("multiply", apply("log", _positive_uniform_from_bits(first, wanted)), 2.0))
    )
    angle = apply("multiply", cast(second, wanted), 2 * math.pi * 0.5 ** (8 * wanted.itemsize))
    return apply("multiply", radius, apply("cos", angle))


def exponential(key: Key, shape: Shape = (), dtype: Any = np.float32) -> Tracer:
    """Exponentially distributed numbers of mean 1, float32 or float64: -log u.

    Parameters
    ----------
    key : Key
        A key of `kg.random`.
    shape : default ()
        The shape of the result.
    dtype : optional
        A dtype, as NumPy takes it.

    Returns
    -------
    Array

    Raises
    ------
    DTypeError
    ShapeError

    Examples
    --------
    >>> bool(np.asarray(kg.random.exponential(kg.random.key(7), 1000)).min() >= 0)
    True
    """
    wanted = _checked_random_float_dtype(dtype)
    (drawn,) = _random_bits_of_dtype(key, shape, wanted)
    return apply("absolute", apply("log", _positive_uniform_from_bits(drawn, wanted)))


def bernoulli(key: Key, shape: Shape = (), p: Any = 0.5) -> Tracer:
    """True with probability p, rounded up to a multiple of 2**-24. p broadcasts to the shape.

    Parameters
    ----------
    key : Key
        A key of `kg.random`.
    shape : default ()
        The shape of the result.
    p : float, default 0.5
        The probability.

    Returns
    -------
    Array

    Raises
    ------
    ShapeError

    Examples
    --------
    >>> bool(kg.random.bernoulli(kg.random.key(7), 3, 1.0).all())
    True
    """
    unit = _uniform_in_unit_interval(key, shape, FLOAT32)
    return _sample_of_drawn_shape(apply("less", unit, _random_bound_in_dtype(p, FLOAT32)), unit)


def choice(key: Key, a: Any, shape: Shape = ()) -> Tracer:
    """Elements of `a`, each as likely, with replacement. They are chosen along its first axis; of range(a) for an int.

    Parameters
    ----------
    key : Key
        A key of `kg.random`.
    a : array_like
        An array.
    shape : default ()
        The shape of the result.

    Returns
    -------
    Array

    Raises
    ------
    ShapeError
        Where there are none.

    Examples
    --------
    >>> kg.random.choice(kg.random.key(7), np.array([5, 6]), 10).shape
    (10,)
    """
    if isinstance(a, (int, np.integer)) and not isinstance(a, Tracer):
        return integers(key, shape, 0, a)
    x = to_traced_array(a)
    if not x.ndim:
        raise ShapeError("choice needs an int, or an array of at least one axis")
    return take(x, integers(key, shape, 0, x.shape[0]), axis=0)


# outside of a trace


def _traced_or_compiled_sampler(traced: Callable[..., Tracer]) -> Callable[..., Any]:
    """The function as users call it: part of the trace in progress, else a compiled function of its own."""

    @functools.wraps(traced)
    def sample_traced_or_compiled(*args: Any, device: str | None = None, **options: Any) -> Any:
        if current_trace() is not None:
            return traced(*args, **options)
        try:
            return _eager_sampler_call(traced, device, args, options)
        except Exception as error:
            raise error.with_traceback(user_frames(error.__traceback__)) from error.__cause__

    return sample_traced_or_compiled


def _eager_sampler_call(
    traced: Callable[..., Tracer], device: str | None, args: tuple[Any, ...], options: dict[str, Any]
) -> Any:
    from ...runtime.core.settings import override, settings

    if device is None:
        place = name_of(device_of_arguments(*args, *options.values()) or open_device(context.device or ("cpu", 0)))
    else:
        place = name_of(device_named(device))
    compiled = _compiled_sampler(traced, place)
    if not settings.disable:
        return compiled(*args, **options)
    with override(disable=False):  # NumPy has no such function
        return compiled(*args, **options)


@functools.cache
def _compiled_sampler(traced: Callable[..., Tracer], device: str) -> Callable[..., Any]:
    from ..jit.kernel_graph import KernelGraph

    return KernelGraph(
        traced, device=device, static_argnames=[n for n in ("shape", "dtype") if n in _sampler_parameter_names(traced)]
    )


def _sampler_parameter_names(function: Any) -> Sequence[str]:
    return function.__code__.co_varnames[: function.__code__.co_argcount]  # type: ignore[no-any-return]


DISTRIBUTIONS = (bits, uniform, integers, normal, exponential, bernoulli, choice)
FUNCTIONS: dict[str, Any] = {f.__name__: _traced_or_compiled_sampler(f) for f in DISTRIBUTIONS} | {
    "Key": Key,
    "key": key,
    "split": split,
}
