"""`x[mask]` where the mask may have no value yet: all elements and the mask, in place of the chosen elements.

What is done to each element, and reductions of the chosen ones, need no more than that, and `x[mask] = y[mask]` puts
the values back: no shape depends on data. Whatever else is asked for needs the mask's value.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ...compiler.core.types import dtype_kind
from ..array.array import Array
from ..core.errors import UnsupportedError, user_line
from ..trace.aliasing import assign_to_tracer, store_elements_in_tracer
from ..trace.concrete_values import concrete_value, constant_value_of_traced_node
from ..trace.dispatch import FUNCTIONS, METHODS, SPECIAL, UFUNCS, NumpyProtocols
from ..trace.operands import new_traced_array, to_traced_array
from ..trace.tracer import Tracer, check_trace_alive, is_asked_by_traced_code, numpy_text_array_of_tracer
from .elementwise import apply, apply_ufunc_of_user_call
from .gather import gather, known_index_value
from .host_calls import require
from .reduction_calls import REDUCED_BY


class MaskedSelection(NumpyProtocols):
    """The chosen elements of an array, in one axis in place of the mask's axes; the other axes follow.

    Assignment to it gives it memory of its own."""

    __slots__ = ("_all", "_base", "_key", "_line", "_made", "_mask")
    _settable = frozenset(["real", "imag"])

    def __init__(
        self, all_: Tracer, mask: Tracer, line: str | None = None, base: MaskedSelection | None = None, key: Any = None
    ) -> None:
        """all_: of the mask's axes and the others. line: of the user's, where the mask was applied. base, key: what
        it is a view of, and which (a function of it, or an index); `all_` is one of base's."""
        self._all, self._mask = all_, mask
        self._base, self._key = base, key
        self._line = line or user_line()
        self._made: Tracer | None = None

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._all.dtype

    @property
    def ndim(self) -> int:
        return self._all.ndim - self._mask.ndim + 1

    @property
    def shape(self) -> tuple[int, ...]:
        return masked_selection_as_array(self).shape

    @property
    def size(self) -> int:
        return masked_selection_as_array(self).size

    @property
    def T(self) -> Any:
        return self if self.ndim == 1 else masked_selection_as_array(self).T

    @property
    def real(self) -> Any:
        return self._complex_part_of_selection(np.real)

    @real.setter
    def real(self, value: Any) -> None:
        self.real[...] = value

    @property
    def imag(self) -> Any:
        return self._complex_part_of_selection(np.imag)

    @imag.setter
    def imag(self, value: Any) -> None:
        self.imag[...] = value

    def _complex_part_of_selection(self, part: Callable[[Any], Any]) -> Any:
        """Its real or imaginary parts, a view of it."""
        return (
            MaskedSelection(part(self._all), self._mask, self._line, self, part)
            if is_lazy_masked_selection(self)
            else part(masked_selection_as_array(self))
        )

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return np.ndarray

    __array_namespace__ = Tracer.__array_namespace__

    def __len__(self) -> int:
        return len(masked_selection_as_array(self))

    def __iter__(self) -> Iterator[Any]:
        return iter(masked_selection_as_array(self))

    def __bool__(self) -> bool:
        return bool(masked_selection_as_array(self))

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return masked_selection_as_array(self).__array__(dtype, copy)

    def __getitem__(self, key: Any) -> Any:
        rest = key[1:] if isinstance(key, tuple) and _is_masked_selection_key(key) and key[0] is not Ellipsis else None
        if key is Ellipsis or (type(key) is slice and key == slice(None)):
            rest = ()
        if is_lazy_masked_selection(self) and rest is not None and all(isinstance(k, (int, slice)) for k in rest):
            return MaskedSelection(
                self._all[(slice(None),) * self._mask.ndim + rest], self._mask, self._line, self, key
            )
        return masked_selection_as_array(self)[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        part = self[key] if _is_masked_selection_key(key) else None
        found = masked_operands_together((part, value)) if type(part) is MaskedSelection else None
        if found is not None:
            store_elements_in_tracer(part._all, found[1][1])  # type: ignore[union-attr]
        else:
            masked_selection_as_array(self)[key] = _masked_argument_as_array(value)

    def assign(self, result: Any) -> MaskedSelection:
        """`self[...] = result`, of an operation in place."""
        if (
            is_lazy_masked_selection(self)
            and type(result) is MaskedSelection
            and is_lazy_masked_selection(result)
            and _is_same_mask(self._mask, result._mask)
        ):
            assign_to_tracer(self._all, result._all)
        else:
            assign_to_tracer(masked_selection_as_array(self), _masked_argument_as_array(result))
        return self

    def __getattr__(self, name: str) -> Any:
        if name in _METHODS and is_lazy_masked_selection(self):
            return lambda *args, **options: _METHODS[name](self, *args, **options)
        if name.startswith("__"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(masked_selection_as_array(self), name)

    def __str__(self) -> str:
        return (
            str(numpy_text_array_of_tracer(masked_selection_as_array(self)))
            if is_asked_by_traced_code()
            else repr(self)
        )

    def __format__(self, spec: str) -> str:
        return (
            format(numpy_text_array_of_tracer(masked_selection_as_array(self)), spec)
            if is_asked_by_traced_code()
            else repr(self)
        )

    def __repr__(self) -> str:
        if is_asked_by_traced_code():
            return repr(numpy_text_array_of_tracer(masked_selection_as_array(self)))
        return f"<traced {self.dtype}, chosen by a mask {list(self._mask.shape)}>"

    __hash__ = None  # type: ignore[assignment]


def _is_masked_selection_key(key: Any) -> bool:
    """Whether it chooses of the other axes alone."""
    keys = key if isinstance(key, tuple) else (key,)
    first = keys[0] if keys else None
    whole = first is Ellipsis or (type(first) is slice and first == slice(None))
    return whole and all(isinstance(k, (int, slice)) for k in keys[1:])


def is_lazy_masked_selection(x: MaskedSelection) -> bool:
    """Whether neither it nor what it is a view of has been made an array."""
    return x._made is None and (x._base is None or is_lazy_masked_selection(x._base))


def masked_selection_of(x: Tracer, mask: Tracer) -> MaskedSelection:
    """x[mask]; the mask's shape is that of x's first axes."""
    return MaskedSelection(new_traced_array(x._value, x), new_traced_array(mask._value, mask))


def masked_selection_as_array(x: MaskedSelection) -> Tracer:
    """The chosen elements as an array; once it is made, it is what the value stands for.

    Raises UnsupportedError where the mask's value is not known."""
    if x._made is None and x._base is not None:
        base = masked_selection_as_array(x._base)
        x._made = x._key(base) if callable(x._key) else base[x._key]
    elif x._made is None:
        trace = check_trace_alive(x._all)
        settled = constant_value_of_traced_node(trace, x._mask._value)
        if settled is None and trace.split is not None:
            x._made = trace.split.call(trace, [x._all._value, x._mask._value], lambda values: values[0][values[1]])
            return x._made
        mask = concrete_value(trace, x._mask._value) if settled is None else settled
        if mask is None:
            raise UnsupportedError(
                "indexing with booleans gives a shape that depends on data; write np.where(mask, x, 0), or a reduction "
                "with where=mask; or decorate with @kg.kernel_graph(untraceable='split')",
                x._line,
            )
        keys = [*mask.nonzero(), *(slice(None),) * (x._all.ndim - mask.ndim)]
        x._made = gather(x._all, keys)
    return x._made


def value_matching_mask(value: Any, mask: Tracer) -> Tracer | None:
    """All elements of a value that the same mask has chosen; None where it is anything else."""
    same = type(value) is MaskedSelection and is_lazy_masked_selection(value) and _is_same_mask(value._mask, mask)
    return value._all if same else None


def _is_same_mask(a: Tracer, b: Tracer) -> bool:
    return a._value.number == b._value.number


# what works on all elements alike


def masked_operands_together(args: Any) -> tuple[MaskedSelection, list[Any]] | None:
    """The first masked value among the arguments, and all as arrays of all elements; None where that cannot be, since
    masks differ, or an array has an element for each chosen one."""
    first: MaskedSelection = next(a for a in args if type(a) is MaskedSelection)
    rest = first.ndim - 1
    found = []
    for a in args:
        if type(a) is MaskedSelection:
            if a.ndim != first.ndim or not is_lazy_masked_selection(a) or not _is_same_mask(a._mask, first._mask):
                return None
            a = a._all
        elif isinstance(a, (np.ndarray, Array, list, tuple)):
            a = to_traced_array(a)
            if a.ndim > rest:
                if a.ndim > rest + 1 or a.shape[0] != 1:
                    return None
                a = METHODS["reshape"](a, a.shape[1:])
        found.append(a)
    return first, found


def _implement_on_masked_elements(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that works on each element alone. It may write what it gives to others that the mask has chosen."""

    def call_on_masked_elements(*args: Any, **options: Any) -> Any:
        out = options.pop("out", None)
        outs = [o for o in (out if isinstance(out, tuple) else (out,)) if o is not None]
        found = None
        if all(type(o) is MaskedSelection for o in outs) and not any(
            type(v) is MaskedSelection for v in options.values()
        ):
            found = masked_operands_together((*args, *outs))
        if found is None:
            return _call_on_whole_arrays(function, args, options, {} if out is None else {"out": out})
        first, all_ = found
        if outs:
            places = iter(all_[len(args) :])
            options["out"] = tuple(None if o is None else next(places) for o in out) if type(out) is tuple else all_[-1]
        results = function(*all_[: len(args)], **options)
        if isinstance(results, tuple):
            every = out if isinstance(out, tuple) else (None,) * len(results)
            return tuple(
                MaskedSelection(r, first._mask, first._line) if o is None else o
                for r, o in zip(results, every, strict=True)
            )
        if outs:
            return outs[0]
        same = (
            a for a in args if type(a) is MaskedSelection and a._all is results
        )  # what gives an array itself, gives it here
        return next(same, MaskedSelection(results, first._mask, first._line))

    return call_on_masked_elements


def _call_on_whole_arrays(
    function: Callable[..., Any], args: Sequence[Any], options: dict[str, Any], written: dict[str, Any]
) -> Any:
    named = {k: _masked_argument_as_array(v) for k, v in options.items()}
    return function(*masked_arguments_as_arrays(args), **named, **written)


def _masked_argument_as_array(x: Any) -> Any:
    return masked_selection_as_array(x) if type(x) is MaskedSelection else x


def masked_arguments_as_arrays(args: Any) -> list[Any]:
    return [masked_arguments_as_arrays(a) if type(a) in (list, tuple) else _masked_argument_as_array(a) for a in args]


def _apply_op_to_masked(op: str, *args: Any, **attrs: Any) -> Any:
    return _implement_on_masked_elements(lambda *all_, **keywords: apply_ufunc_of_user_call(op, *all_, **keywords))(
        *args, **attrs
    )


# reductions


def _reduce_masked_selection(function: Any, low: str = "") -> Callable[..., Any]:
    """A reduction with where=; or, of what has no such, with the other elements replaced by the largest (low=False) or
    smallest value there is."""

    def reduce_where_mask_holds(x: Any, axis: Any = None, *args: Any, **options: Any) -> Any:
        implementation = FUNCTIONS[function]
        if (
            type(x) is not MaskedSelection
            or not is_lazy_masked_selection(x)
            or options.get("where") is not None
            or _has_keepdims_or_out(options)
        ):
            return implementation(
                _masked_argument_as_array(x),
                axis,
                *args,
                **{k: v if k == "out" else _masked_argument_as_array(v) for k, v in options.items()},
            )
        k, rest = x._mask.ndim, x.ndim - 1
        axes = range(rest + 1) if axis is None else [axis] if isinstance(axis, int) else axis
        numbers = {a % (rest + 1) if -rest - 1 <= a <= rest else a for a in axes}
        moved = tuple(a + k - 1 for a in numbers if a)
        if 0 not in numbers:
            return MaskedSelection(implementation(x._all, moved, *args, **options), x._mask, x._line)
        over = tuple(range(k)) + moved
        wide = METHODS["reshape"](x._mask, x._mask.shape + (1,) * rest)
        if low:
            result = implementation(
                apply("where", wide, x._all, _least_or_greatest_of_masked_dtype(x.dtype, low)), over, *args, **options
            )
            has_value = args or options.get("initial") is not None
            return result if has_value else _check_mask_selects_something(result, x._mask, _EXTREMES[low])
        return implementation(x._all, over, *args, where=wide, **options)

    return reduce_where_mask_holds


_EXTREMES = {"low": "maximum", "high": "minimum"}  # the limit that replaces the other elements -> NumPy's ufunc


def _check_mask_selects_something(result: Tracer, mask: Tracer, ufunc: str) -> Tracer:
    """The result of a reduction without identity; the call raises NumPy's ValueError where the mask holds nowhere."""
    always = known_index_value(mask)
    if always is not None and always.any():
        return result
    some = FUNCTIONS[np.any](mask)
    return require(result, some, ValueError, f"zero-size array to reduction operation {ufunc} which has no identity")


def _has_keepdims_or_out(options: dict[str, Any]) -> bool:
    return bool(options.get("keepdims")) or options.get("out") is not None


def _least_or_greatest_of_masked_dtype(dtype: np.dtype[Any], low: str) -> Any:
    """The smallest or the largest value of a dtype."""
    kind = dtype_kind(dtype)
    if kind == "b":
        return np.bool_(low == "high")
    if kind in "iu":
        return dtype.type(np.iinfo(dtype).min if low == "low" else np.iinfo(dtype).max)
    return dtype.type(-np.inf if low == "low" else np.inf)


def _count_nonzero_of_masked(x: Any, axis: Any = None, **options: Any) -> Any:
    return _FUNCTIONS[np.sum](apply_ufunc_of_user_call("not_equal", x, 0), axis, **options)


def _dot_of_masked_vectors(function: Any, a: Any, b: Any, *args: Any, **options: Any) -> Any:
    """Of two vectors that one mask has chosen."""
    vectors = all(type(v) is MaskedSelection and is_lazy_masked_selection(v) and v.ndim == 1 for v in (a, b))
    if vectors and _is_same_mask(a._mask, b._mask) and not args and not options:
        a = apply_ufunc_of_user_call("conjugate", a) if function is np.vdot else a
        products = apply_ufunc_of_user_call("multiply", a, b)
        return _FUNCTIONS[np.sum](products, dtype=products.dtype)  # a sum alone would be of a wider integer
    return FUNCTIONS[function](_masked_argument_as_array(a), _masked_argument_as_array(b), *args, **options)


_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    **{
        f: _implement_on_masked_elements(lambda *args, _f=f, **options: FUNCTIONS[_f](*args, **options))
        for f in (np.clip, np.round, np.around, np.angle, np.nan_to_num, np.isclose, np.where)
    },
    **{
        f: _reduce_masked_selection(f)
        for f in (np.sum, np.prod, np.any, np.all, np.mean, np.var, np.std, np.nansum, np.nanprod)
    },
    **{f: _reduce_masked_selection(f, "low") for f in (np.max, np.amax)},
    **{f: _reduce_masked_selection(f, "high") for f in (np.min, np.amin)},
    np.real: lambda val: val.real,
    np.imag: lambda val: val.imag,
    np.count_nonzero: _count_nonzero_of_masked,
    **{f: functools.partial(_dot_of_masked_vectors, f) for f in (np.dot, np.vdot, np.inner, np.matmul)},
    np.size: lambda x, axis=None: FUNCTIONS[np.size](masked_selection_as_array(x), axis),
}
_METHODS: dict[str, Callable[..., Any]] = {
    **{
        name: _FUNCTIONS[getattr(np, name)]
        for name in ("sum", "prod", "any", "all", "mean", "var", "std", "max", "min", "clip", "round", "dot")
    },
    **{
        name: _implement_on_masked_elements(lambda x, *args, _name=name, **options: METHODS[_name](x, *args, **options))
        for name in ("astype", "copy", "conj", "conjugate")
    },
}


def _call_function_on_masked(function: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """A NumPy function with a masked value among its arguments."""
    on_masked = _FUNCTIONS.get(function)
    if on_masked is not None:
        return on_masked(*args, **options)
    return FUNCTIONS[function](
        *masked_arguments_as_arrays(args), **{k: _masked_argument_as_array(v) for k, v in options.items()}
    )


def _call_ufunc_on_masked(ufunc: np.ufunc, method: str, inputs: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """A ufunc, or a method of one."""
    plain = {k: v for k, v in options.items() if v is not None}
    if method == "__call__" and ufunc.signature is not None:  # of vectors and matrices, as matmul: not of each element
        if ufunc in _FUNCTIONS and not plain:
            return _FUNCTIONS[ufunc](*inputs)
        plain |= {"out": tuple(masked_arguments_as_arrays(plain["out"]))} if "out" in plain else {}
        return UFUNCS["__call__"](ufunc, *masked_arguments_as_arrays(inputs), **plain)
    if method == "__call__":
        return _implement_on_masked_elements(lambda *all_, **keywords: UFUNCS["__call__"](ufunc, *all_, **keywords))(
            *inputs, **plain
        )
    if method == "reduce" and ufunc in REDUCED_BY and len(inputs) == 1:
        return _FUNCTIONS[REDUCED_BY[ufunc]](inputs[0], plain.pop("axis", 0), **plain)
    return UFUNCS[method](ufunc, *masked_arguments_as_arrays(inputs), **options)


SPECIAL[MaskedSelection] = (
    _apply_op_to_masked,
    _call_function_on_masked,
    _call_ufunc_on_masked,
    masked_selection_as_array,
)
