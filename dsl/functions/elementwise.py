"""Rows of the op table on traced values: operators, NumPy's ufuncs with their options, where, clip and the like."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...compiler.core.types import FLOAT32, FLOAT64, HALVES, dtype_kind, promoted_dtype
from ...compiler.graph.graph import Value
from ...compiler.ops.numpy_reference import gelu_is_by_tanh
from ...compiler.ops.special import SPECIAL_FUNCTIONS
from ...compiler.ops.table import OPS, UFUNC_PARTS
from ..core.errors import (
    ArgumentsError,
    DTypeError,
    NumberError,
    ShapeError,
    UnsupportedError,
    nearest_name_hint,
    numpy_error_as_ours,
)
from ..core.spec import Host, checked_dtype, to_index
from ..trace.aliasing import (
    TracerComplexPartView,
    TracerReadOnlyView,
    assign_to_tracer,
    memory_layout_of_tracer,
    roots_of_array,
    tracer_layout_of_ufunc_result,
    view_of_tracer,
)
from ..trace.dispatch import (
    FUNCTIONS,
    METHODS,
    SPECIAL,
    UFUNCS,
    LoopOperand,
    apply_view_rule_of_numpy,
    call_function,
    check_options_of_numpy_call,
    implements,
    numpy_names_in_dispatch_tables,
    public_numpy_name,
)
from ..trace.items import wrap_integer_operand_to_dtype
from ..trace.memory_layout import CopyTracerLayout, has_one_dense_tracer_layout
from ..trace.number_kinds import number_kinds_of_result, with_other_number_kinds
from ..trace.operands import (
    loop_operations,
    new_traced_array,
    new_traced_result,
    to_graph_operand,
    to_traced_array,
    trace_of_operands,
)
from ..trace.trace import current_trace
from ..trace.tracer import SCALAR, TracedNumber, Tracer


def apply(op: str, *args: Any, dtype: Any = None, **attrs: Any) -> Tracer:
    """Row `op` on broadcast arguments of any kind, at least one of them traced."""
    trace = trace_of_operands(*args)
    if trace.recorder is not None:
        return trace.recorder.apply(op, *args, dtype=dtype, **attrs)  # type: ignore[no-any-return]
    operands = [to_graph_operand(a) for a in args]
    try:
        value = trace.builder.map(op, *operands, dtype=dtype, **attrs)
    except NumberError as error:
        value = _compare_with_out_of_range_integer(op, operands, error)
    if any(type(x) is Value and x.others for x in operands):
        value = with_other_number_kinds(value, number_kinds_of_result(op, operands, dtype))
    if has_one_dense_tracer_layout(value.type):
        return Tracer(trace, value, None if value.type.shape else SCALAR)
    return Tracer(trace, value, layout=tracer_layout_of_ufunc_result(args))


def apply_ufunc_of_user_call(op: str, *args: Any, **attrs: Any) -> Tracer:
    """`apply` as the user asked for it: where NumPy looks at the value of a number, so does this."""
    for x in args:
        if type(x) in SPECIAL:
            return SPECIAL[type(x)][0](op, *args, **attrs)  # type: ignore[no-any-return]
    rule = _VALUE_RULES.get(op)
    replaced = None if rule is None else rule(*args)
    return apply(op, *args, **attrs) if replaced is None else replaced


def apply_op_of_operator(op: str, *args: Any) -> Tracer:
    """`apply_ufunc_of_user_call` for one of Python's operators, which NumPy gives more fast paths than its functions:
    the squares of booleans, and the roots of float16 and complex arrays."""
    x = args[0]
    if op == "power" and isinstance(x, _FLOATS) and issubclass(type(args[1]), _FLOATS) and args[1] == 0.5:
        return _root_of_number(*args)
    if op == "power" and isinstance(x, np.ndarray) and not isinstance(args[1], (Tracer, np.ndarray)):
        given = args[1]._number if type(args[1]) is TracedNumber else args[1]
        fast = _FAST_POWERS.get(dtype_kind(x.dtype), {})
        if type(given) in (int, float) and (x.dtype != np.bool_ or type(given) is int):
            if given in fast and given is not args[1]:
                raise args[1]._need_number_value()
            if given in fast and (given == 0.5 or type(given) is int):
                return apply_ufunc_of_user_call(fast[given], x)
            if given is not args[1] and fast:
                trace_of_operands(x).checks.append(f"{args[1]._name} not in {(*fast,)}")
    return apply_ufunc_of_user_call(op, *args)


_FLOATS = (float, np.floating)


def _root_of_number(x: Any, half: Any) -> Tracer:
    """A number's root by C's power, which -inf has, and which of -0.0 is 0.0; an array's is `sqrt`."""
    x = apply("add", x, half - half)
    return apply("where", apply("equal", x, -math.inf), math.inf, apply("sqrt", x))


# kind of an array -> exponents for which `x ** n` is another row
_FAST_POWERS: dict[str, dict[float, str]] = {
    "b": {2: "square"},
    "f": {0.5: "sqrt"},
    "c": {-1: "reciprocal", 0.5: "sqrt", 2: "square"},
}


def _power_of_scalar_exponent(x: Any, exponent: Any) -> Tracer | None:
    """NumPy's fast paths for scalar exponents (-0.0 ** 0.5 is -0.0). Negative ones for integers are refused, as NumPy
    does."""
    traced = type(exponent) is TracedNumber
    given: Any = exponent._number if traced else exponent
    if not issubclass(type(given), (int, float, np.generic)):  # stand-ins are instances of these too
        return None
    x = to_traced_array(x)
    number: Any = given
    whole = dtype_kind(x.dtype) in "biu" and isinstance(number, (int, np.integer))
    if traced:  # what follows must hold for every value that the trace serves
        check = f"{exponent._name} >= 0" if whole else f"{exponent._name} != 0.5"
        if (number < 0) if whole else (number == 0.5):
            raise exponent._need_number_value()
        trace_of_operands(exponent).checks.append(check)
        return None
    if whole and number < 0 and number >= (np.iinfo(x.dtype).min if dtype_kind(x.dtype) != "b" else -(2**63)):
        raise ShapeError("integers to negative integer powers are not allowed; write x.astype(np.float64) ** n")
    row, dtype = {0.5: "sqrt", 2: "square"}.get(number), apply("power", x, exponent).dtype
    if row is None or dtype not in (FLOAT32, FLOAT64, *(HALVES if row == "square" else ())):
        return None
    return apply(row, x, dtype=dtype)


# ufuncs of scipy.special, and the rows that mean the same
_SCIPY = {
    **{name: name for name in (*SPECIAL_FUNCTIONS, "erf", "erfc", "exp2", "expm1", "log1p", "cbrt")},
    "gammaln": "lgamma",
    "expit": "sigmoid",
}
_VALUE_RULES: dict[str, Callable[..., Tracer | None]] = {"power": _power_of_scalar_exponent}


def _compare_with_out_of_range_integer(op: str, operands: list[Any], error: NumberError) -> Value:
    """NumPy's answer where a Python int does not fit the other's dtype: comparisons have one, for all values alike."""
    builder = trace_of_operands().builder
    answers = []
    for end in ("min", "max"):
        samples = [_ufunc_sample_of_dtype(a.dtype, end) if isinstance(a, Value) else a for a in operands]
        try:
            answers.append(OPS[op].numpy(*samples))  # type: ignore[misc]
        except OverflowError:
            raise error from None
    answer = answers[0]
    if answer != answers[1]:
        raise error
    shape = builder.broadcast_shapes(op, [a.shape for a in operands if isinstance(a, Value)])
    return builder.broadcast(builder.const(answer), shape)


def _ufunc_sample_of_dtype(dtype: np.dtype[Any], end: str) -> Host:
    return np.array(getattr(np.iinfo(dtype), end) if dtype.kind in "iu" else end == "max", dtype)


def call_ufunc(
    ufunc: np.ufunc,
    *inputs: Any,
    out: Any = None,
    where: Any = True,
    dtype: Any = None,
    casting: str = "same_kind",
    signature: Any = None,
    order: str = "K",
    subok: bool = True,
    **extra_options: Any,
) -> Any:
    """`ufunc(*inputs, ...)`; extra_options: what generalised ufuncs take. Several results come as a tuple."""
    implementation = FUNCTIONS.get(ufunc)
    outs = out if isinstance(out, tuple) else (out,) * ufunc.nout
    if implementation is not None:
        asked = {"out": outs[0], "dtype": dtype, "casting": None if casting == "same_kind" else casting}
        options = {**extra_options, **{k: v for k, v in asked.items() if v is not None}}
        check_options_of_numpy_call(implementation, public_numpy_name(ufunc), options)
        return apply_view_rule_of_numpy(ufunc.__name__, implementation(*inputs, **options), inputs, options)
    if extra_options:
        raise ShapeError(f"{public_numpy_name(ufunc)} has no argument {next(iter(extra_options))}=; leave it out")
    parts = UFUNC_PARTS.get(ufunc)
    if parts is None:
        parts = (_row_of_scipy_ufunc(ufunc),)
        inputs = _ufunc_inputs_in_loop_dtypes(ufunc, inputs, dtype, casting, signature)
        if any(x.dtype not in (FLOAT32, FLOAT64) for x in inputs):
            raise _unsupported_ufunc(ufunc)
        dtype, signature = None, None
    if dtype is not None or casting != "same_kind" or signature is not None:
        inputs = _ufunc_inputs_in_loop_dtypes(ufunc, inputs, dtype, casting, signature)
        dtype = None
    for part, o in zip(parts, outs, strict=True):
        if hasattr(o, "dtype"):
            check_output(part, inputs, o, casting)
    found = [
        apply_ufunc_of_user_call(part, *inputs) for part in parts
    ]  # all of them before one is written over an input
    if where is not True:
        _check_where_leaves_out_alone(ufunc, found, outs, (*inputs, where))
    results = tuple(
        _ufunc_result_where_mask_holds(result, o, where, casting) for result, o in zip(found, outs, strict=True)
    )
    return results if len(results) > 1 else results[0]


def _row_of_scipy_ufunc(ufunc: np.ufunc) -> str:
    """Other libraries have ufuncs of the same names. Raises UnsupportedError where there is no row."""
    row, module = _SCIPY.get(ufunc.__name__), sys.modules.get("scipy.special")
    if row is None or getattr(module, ufunc.__name__, None) is not ufunc:
        raise _unsupported_ufunc(ufunc)
    return row


def _unsupported_ufunc(ufunc: np.ufunc) -> UnsupportedError:
    name = public_numpy_name(ufunc) if ufunc.__name__ in dir(np) else ufunc.__name__
    near = nearest_name_hint(name, [*numpy_names_in_dispatch_tables(), *ELEMENTWISE])
    return UnsupportedError(f"{name} cannot be traced{near}; call it outside of the traced function, or in kg.host")


def _ufunc_inputs_in_loop_dtypes(
    ufunc: np.ufunc, inputs: tuple[Any, ...], dtype: Any, casting: str, signature: Any
) -> tuple[Any, ...]:
    """The inputs in the dtypes that NumPy's own choice of loop asks for."""
    kinds = [_dtype_kind_of_ufunc(a) for a in inputs]
    if isinstance(signature, str):
        signature = tuple(np.dtype(c) for c in signature.replace("->", ""))
    if signature is None and dtype is not None:
        signature = (None,) * ufunc.nin + (checked_dtype(dtype),) * ufunc.nout
    try:
        chosen: Any = {"casting": casting} if signature is None else {"casting": casting, "signature": signature}
        if casting == "equiv":  # a number that this refuses ends the process in NumPy's resolve_dtypes
            ufunc(*(k(1) if isinstance(k, type) else np.empty(0, k) for k in kinds), **chosen)
        loop = ufunc.resolve_dtypes((*kinds, *(None,) * ufunc.nout), **chosen)
    except TypeError as error:
        raise DTypeError(f"{error}; convert the arguments with x.astype(...)") from None
    return tuple(METHODS["astype"](to_traced_array(a), to) for a, to in zip(inputs, loop[: ufunc.nin], strict=True))


def check_output(op: str, inputs: Sequence[Any], out: Any, casting: Any = "same_kind") -> None:
    """Raises DTypeError where NumPy cannot cast the result to the dtype of `out`. NumPy looks at values after that."""
    if op not in _VALUE_RULES:
        return
    try:
        OPS[op].numpy.resolve_dtypes((*map(_dtype_kind_of_ufunc, inputs), out.dtype), casting=casting)  # type: ignore[union-attr]
    except TypeError as error:
        raise DTypeError(f"{error}; pass an out of the result's dtype") from None


def _dtype_kind_of_ufunc(a: Any) -> Any:
    if isinstance(a, LoopOperand):
        return a.promotes_as
    found = to_graph_operand(a)
    if isinstance(found, Value):
        return found.promotes_as
    return found.dtype if isinstance(found, np.generic) else np.dtype(bool) if isinstance(found, bool) else type(found)


def _check_where_leaves_out_alone(
    ufunc: np.ufunc, results: Sequence[Tracer], outs: Sequence[Any], read: Sequence[Any]
) -> None:
    """Raises UnsupportedError where NumPy changes what `where` leaves out: it takes an `out` that it reads too, under
    another name, through the result's dtype and back."""
    roots = {id(root) for x in read if type(x) is Tracer for root in roots_of_array(x)}
    for result, out in zip(results, outs, strict=True):
        looked_at = {id(root) for root in roots_of_array(out)} if type(out) is Tracer else set()
        shared = looked_at & roots and not any(x is out for x in read)
        if shared and result.dtype != out.dtype:
            raise UnsupportedError(
                f"{public_numpy_name(ufunc)} with where= and an out of another dtype, whose memory it reads, loses "
                "what is left out; write out[...] = np.where(...)"
            )


def _ufunc_result_where_mask_holds(result: Tracer, out: Any, where: Any, casting: str) -> Tracer:
    """The result where `where` holds; elsewhere `out`, or 0 (NumPy leaves it undefined)."""
    if out is not None and not hasattr(out, "__array_ufunc__"):  # which arrays have, and numbers and lists do not
        raise DTypeError(f"return arrays must be arrays, not of type {type(out).__name__}; pass an array as out")
    if where is not True:
        if out is not None and out.dtype != result.dtype and np.can_cast(result.dtype, out.dtype, casting):  # type: ignore[arg-type]
            result = METHODS["astype"](result, out.dtype)  # what is left out keeps its bits
        other = out if out is not None else result.dtype.type(0)
        result = apply("where", ufunc_where_mask(where), result, other)
    return result if out is None else assign_to_outputs(out, result, casting)


def ufunc_where_mask(where: Any) -> Tracer:
    """What is given as `where=`: an array of booleans, or numbers that are. Raises DTypeError."""
    mask = to_traced_array(where)
    if mask.dtype == np.bool_:
        return mask
    if hasattr(where, "dtype") and not isinstance(where, np.generic):
        raise DTypeError(f"where= takes booleans, not an array of {mask.dtype}; write where=x != 0")
    return apply("not_equal", mask, 0)


def fitting_ufunc_where_mask(where: Any, shape: tuple[int, ...]) -> Tracer:
    """`ufunc_where_mask` of what is written or reduced, which it makes no larger. Raises ShapeError, DTypeError."""
    mask = ufunc_where_mask(where)
    ours = shape[max(len(shape) - mask.ndim, 0) :]
    if len(ours) != mask.ndim or any(m not in (1, n) for m, n in zip(mask.shape, ours, strict=True)):
        raise ShapeError(f"could not broadcast where mask from shape {mask.shape} into shape {shape}")
    return mask


def assign_to_outputs(out: Any, result: Tracer, casting: str = "same_kind") -> Tracer:
    """`assign_to_tracer` of a ufunc's result, which is broadcast to `out`. Raises ShapeError."""
    if isinstance(out, np.ndarray) and result.shape != out.shape:
        result = new_traced_result(result._trace.builder.broadcast(result._value, out.shape), result)
    return assign_to_tracer(out, result, casting)


UFUNCS["__call__"] = call_ufunc  # its methods are in `ufunc_methods`


# functions that are no ufuncs


def _public_ufunc_function(op: str) -> Callable[..., Any]:
    """Row `op` as a function of its arguments and attributes."""

    def call_op_with_attributes(*args: Any, **attrs: Any) -> Any:
        return apply(op, *args, **attrs)

    call_op_with_attributes.__name__ = op
    return call_op_with_attributes


@implements(np.where)
def where(condition: Any, x: Any = None, y: Any = None, /) -> Tracer:
    """Elements of `x` where the condition holds, else of `y`; of a condition alone, the places where it holds."""
    if (x is None) != (y is None):
        raise ShapeError("np.where takes a condition and two choices; write np.where(c, a, b)")
    if x is None:
        return call_function(np.nonzero, (condition,), {})  # type: ignore[no-any-return]
    condition = bool(condition) if type(condition) in (int, float, complex) else condition
    if (loop := loop_operations()) is not None:
        return loop.apply("where", condition, x, y)
    (first, second), _ = select_choices_in_one_dtype(x, y)
    result = apply("where", condition, first, second)
    return new_traced_array(result._value, condition, x, y)


_WEAK = (bool, int, float, complex, TracedNumber)
_WHERE_WRAPS = np.lib.NumpyVersion(np.__version__) < "2.5.0.dev0"


def select_choices_in_one_dtype(*given: Any) -> tuple[list[Any], np.dtype[Any]]:
    """Choices, arrays and numbers, as NumPy takes them, and the result's dtype. The numbers have none of their own, and
    integers that do not fit are taken modulo the dtype's range before NumPy 2.5, and refused since."""
    parts = [c if type(c) in _WEAK else to_traced_array(c) for c in given]
    dtype = promoted_dtype(*map(_dtype_kind_of_ufunc, parts))
    return [wrap_integer_operand_to_dtype(p, dtype) for p in parts] if _WHERE_WRAPS else parts, dtype


_MISSING: Any = getattr(np, "_NoValue", None)  # which callers may pass


@implements(np.clip)
def _clip_function(
    a: Any,
    a_min: Any = _MISSING,
    a_max: Any = _MISSING,
    out: Any = None,
    *,
    min: Any = _MISSING,
    max: Any = _MISSING,
    dtype: Any = None,
) -> Tracer:
    """`x.clip`, of which the bounds have two names: both a_min and a_max are given, or neither is."""
    old, new = (a_min, a_max), (min, max)
    if any(bound is not _MISSING for bound in old):
        if a_min is _MISSING or a_max is _MISSING:
            missing = "a_min" if a_min is _MISSING else "a_max"
            raise ArgumentsError(f"clip() missing 1 required positional argument: {missing!r}; pass None for no bound")
        if any(bound is not _MISSING for bound in new):
            raise ShapeError("clip takes a_min and a_max, or min and max; leave out the latter")
        new = old
    low, high = (None if bound is _MISSING else bound for bound in new)
    return clip(to_traced_array(a) if type(a) in _WEAK else a, low, high, out, dtype=dtype)


def root_of_squares_for_norm(squares: Tracer, function: Callable[[Tracer], Tracer] | None = None) -> Tracer:
    """The root of a sum of squares, or another function that is 0 at 0; where it is differentiated all of its
    derivatives at 0 are 0, as PyTorch's are: one of those that it has around there."""
    result = apply("sqrt", squares) if function is None else function(squares)
    if not is_tracing_for_derivatives():
        return result
    return apply("where", apply("equal", squares, 0), 0.0, result)


def is_tracing_for_derivatives() -> bool:
    """Whether a function that is differentiated is being traced."""
    trace = current_trace()
    return trace is not None and trace.deriving > 0


@implements(method="clip")
def clip(a: Any, min: Any = None, max: Any = None, out: Any = None, *, dtype: Any = None) -> Tracer:
    """min(max(a, low), high); None is no bound. Between two bounds for all elements equal zeros keep their sign."""
    low, high = min, max
    kind = to_traced_array(a).dtype
    if kind.kind in "iu":  # Python integers that bound nothing need not fit
        low = None if type(low) is int and low <= np.iinfo(kind).min else low
        high = None if type(high) is int and high >= np.iinfo(kind).max else high
    if low is None and high is None:
        result = apply("positive", a)
    elif high is None:
        result = apply("maximum", a, low, dtype=dtype)
    elif low is None:
        result = apply("minimum", a, high, dtype=dtype)
    elif all(_ufunc_operand_size(bound) == 1 for bound in (low, high)) or not _is_clip_minimum_of_maximum(
        select_choices_in_one_dtype(a, low, high)[1]
    ):
        result = apply("clip", a, low, high, dtype=dtype)
    else:
        result = apply("minimum", apply("maximum", a, low, dtype=dtype), high, dtype=dtype)
    return result if out is None else assign_to_outputs(out, result)


def _is_clip_minimum_of_maximum(dtype: np.dtype[Any]) -> bool:
    """Whether NumPy's clip of the dtype with array bounds is its minimum of its maximum."""
    return dtype not in HALVES and dtype.kind != "c"


def _ufunc_operand_size(x: Any) -> int:
    """How many elements an operand has; of a loop's array more than one, as it may have."""
    if isinstance(x, LoopOperand):
        return 1 + isinstance(x, np.ndarray)
    return x.size if isinstance(x, Tracer) else int(np.size(x)) if not isinstance(x, TracedNumber) else 1


def clip_traced_array(a: Any, /, min: Any = None, max: Any = None, out: Any = None, **options: Any) -> Any:
    """`clip_array` of a traced value."""
    low, high = options.pop("a_min", min), options.pop("a_max", max)
    return clip(a, low, high, out, **options)


def clip_array(a: Any, /, min: Any = None, max: Any = None, out: Any = None, **options: Any) -> Any:
    """min(max(a, min), max); None is no bound. NumPy's `a_min` and `a_max` are other names of the bounds."""
    low, high = options.pop("a_min", min), options.pop("a_max", max)
    return np.clip(a, low, high, out=out, **options)


@implements(np.round, np.around, method=True)
def round(a: Any, decimals: int = 0, out: Any = None) -> Tracer:
    """To even at ties; decimals as NumPy: multiply, rint, divide. Integers are rounded to tens as float64."""
    x = to_traced_array(a)
    kind = dtype_kind(x.dtype)
    decimals = to_index(decimals, "decimals")
    if kind == "b" and decimals:
        raise DTypeError("booleans have no decimals; write x.astype(np.float64)")
    if decimals == 0 or (kind in "iu" and decimals > 0):
        result = new_traced_result(x._value, x) if kind in "iu" else _round_to_nearest_integer(x)
    elif kind in "iu":
        result = round(x.astype(np.float64), decimals).astype(x.dtype)
    elif kind == "c":  # each part by itself, which keeps the signs of zeros
        result = apply("complex", *(round(apply(part, x), decimals) for part in ("real", "imag")))
    else:
        scale = 10.0 ** abs(decimals) if abs(decimals) <= sys.float_info.max_10_exp else math.inf
        up, down = ("multiply", "divide") if decimals > 0 else ("divide", "multiply")
        scaled = apply(up, x, scale)
        if out is not None:  # which holds what is between
            scaled = scaled.astype(out.dtype)
        result = apply(down, _round_to_nearest_integer(scaled), scale)
    return result if out is None else assign_to_tracer(out, result)


def _round_to_nearest_integer(x: Tracer) -> Tracer:
    return apply("rint", x)


@implements(np.real)
def real(val: Any) -> Tracer:
    return _np_real_or_imag_view(to_traced_array(val), "real")


@implements(np.imag)
def imag(val: Any) -> Tracer:
    return _np_real_or_imag_view(to_traced_array(val), "imag")


def _np_real_or_imag_view(x: Tracer, name: str) -> Tracer:
    """A view of complex numbers; of real ones themselves, or zeros that are read-only."""
    if x._owner == SCALAR:
        return apply(name, x)
    if dtype_kind(x.dtype) == "c":
        return view_of_tracer(x, TracerComplexPartView(name))
    return (
        x
        if name == "real"
        else view_of_tracer(new_traced_array(apply(name, x)._value, x), TracerReadOnlyView("x.imag of real numbers"))
    )


@implements(np.angle)
def angle(z: Any, deg: bool = False) -> Tracer:
    return apply("angle", z, deg=bool(deg))


@implements(method="conj")
@implements(method="conjugate")
def conj(x: Any) -> Tracer:
    """Of numbers that are not complex the array itself, where np.conj makes another."""
    return apply("conjugate", x) if x.dtype.kind == "c" else x


@implements(np.isclose)
def isclose(a: Any, b: Any, rtol: Any = 1e-05, atol: Any = 1e-08, equal_nan: bool = False) -> Tracer:
    """|a - b| <= atol + rtol * |b|, and equal infinities."""
    x: Any
    y: Any
    x, y, less, least = (v if type(v) in _WEAK else to_traced_array(v) for v in (a, b, rtol, atol))
    if isinstance(y, Tracer):
        y = METHODS["astype"](y, np.result_type(y.dtype, 1.0), copy=False)
    elif isinstance(y, int):
        y = y * 1.0  # a float
    near = apply("less_equal", abs(x - y), least + less * abs(y))  # Python's own arithmetic on Python numbers
    result = apply("logical_or", apply("logical_and", near, apply("isfinite", y)), apply("equal", x, y))
    if equal_nan:
        result = apply("logical_or", result, apply("logical_and", apply("isnan", x), apply("isnan", y)))
    return result


@implements(np.nan_to_num)
def nan_to_num(x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Tracer:
    """With copy=False of an array, which it gives back; of no axis a scalar, the value that the array has then."""
    limits = {"nan": nan, "posinf": posinf, "neginf": neginf}
    old = to_traced_array(x)
    whole = dtype_kind(old.dtype) in "biu"
    limits = {} if whole else limits
    if any(isinstance(v, (complex, np.complexfloating)) for v in limits.values()):
        raise DTypeError("np.nan_to_num puts real numbers in place of NaN and infinities, not complex ones")
    if not copy and (isinstance(x, np.generic) or not hasattr(x, "dtype")):
        raise ShapeError("np.nan_to_num(copy=False) changes an array, and this is none; leave out copy=False")
    result = apply("nan_to_num", old, **{k: None if v is None else float(v) for k, v in limits.items()})
    if not copy:
        result = old if whole else assign_to_tracer(old, result)
    elif type(result) is Tracer and result._owner != SCALAR:
        result._layout = CopyTracerLayout((memory_layout_of_tracer(old), old._held.type))
    return result if result.shape or type(result) is not Tracer else Tracer(result._trace, result._value, SCALAR)


_OWN = {
    "erf": "The error function, 2 / sqrt(pi) times the integral of exp(-t^2) from 0 to x.",
    "erfc": "1 - erf(x), without cancellation.",
    "lgamma": "The logarithm of the absolute value of the gamma function.",
    "sigmoid": """1 / (1 + exp(-x)), without overflow.

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

    Examples
    --------
    >>> np.asarray(kg.nn.sigmoid(np.array([0.0, -1000.0])))
    array([0.5, 0. ])
    """,
    "relu": """max(x, 0).

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

    Examples
    --------
    >>> np.asarray(kg.nn.relu(np.array([-1.0, 2.0])))
    array([0., 2.])
    """,
}


def gelu(x: Any, approximate: bool | str = False) -> Any:
    """x * (1 + erf(x / sqrt(2))) / 2 (Hendrycks and Gimpel, 2016).

    Parameters
    ----------
    x : array_like
        An array.
    approximate : bool or str, default False
        True or "tanh" for the formula with tanh; False or "none" for the exact one.

    Returns
    -------
    Array

    Raises
    ------
    TypeError
        For arrays of strings or objects (in a decorated function DTypeError).
    ValueError
        For another `approximate`.

    Examples
    --------
    >>> np.asarray(kg.nn.gelu(np.array([-1.0, 2.0]))).round(3)
    array([-0.159,  1.954])
    """
    try:
        by_tanh = gelu_is_by_tanh(approximate)
    except ValueError as error:
        raise numpy_error_as_ours(error, "gelu: ") from None
    return apply("gelu", x, **({"approximate": True} if by_tanh else {}))


ELEMENTWISE: dict[str, Callable[..., Any]] = {
    "gelu": gelu
}  # public name -> function, for the rows that are no NumPy functions
for _name, _text in _OWN.items():
    ELEMENTWISE[_name] = _public_ufunc_function(_name)
    ELEMENTWISE[_name].__doc__ = _text
