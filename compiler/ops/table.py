"""The op table: one row per op. A row has a NumPy meaning, a dtype rule, a formula in primitives and a cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from ...runtime.core.frozen import field, frozen
from ..core import types as rules
from ..core.types import DType, dtype_kind
from ..kernel.body_builder import (
    KernelBody,
    KernelValue,
    complex_kernel_value,
    kernel_select,
    kernel_user_function_call,
)
from . import complex as cx
from . import complex_functions as an
from . import derivatives as d
from . import integer as it
from . import numpy_reference as ref
from . import philox as rnd
from . import real as fl
from . import special as sp

Formula: TypeAlias = Callable[..., KernelValue]
TOO_MANY_BITS = "an int of more than 64 bits"


@frozen
class PythonError:
    """What Python's operator raises among Python's own numbers. where: of the operands and NumPy's result.

    wraps: Python raises nothing, and its int has more bits than the result."""

    kind: type[Exception]
    text: str
    where: Callable[..., Any]
    wraps: bool = False


@frozen
class Op:
    """One row.

    kind: `map` (elementwise), `reduce`, `view`, `assembly` (parts stored in place), `source`, `library`, `device` (what
    passes between devices), or `gather`: elementwise in all arguments but the first, whose elements are read where the
    others say.
    arity: number of arguments, -1 for any. numpy: the reference, attributes as keywords; None where the graph's
    evaluator has its own. types: the dtype rule; use `resolve`. formulas: kind of the first argument (`b i u f c`) ->
    the expansion on values of the loop's dtypes. cost: flop-equivalents an element (an add is 1).
    operator: the Python method that it answers; errors: what that raises of Python's numbers. widen: 16-bit floats are
    computed in float32.
    identity: of a reduction, or None where NumPy refuses an empty one; how a kernel joins two results: `COMBINERS`.
    parity: `odd` where f(-x) is -f(x) for real floats, `even` where it is f(x).
    contiguous: of a library call: its arrays have no gaps.
    derivative: of an elementwise row its formulas; the rules of the others are in `compiler/derive`.
    """

    name: str
    kind: str
    arity: int
    numpy: Callable[..., Any] | None = None
    types: rules.Rule = rules.no_arguments_promotion_rule
    formulas: Mapping[str, Formula] = field(default_factory=dict, repr=False, compare=False)
    cost: float = 1
    operator: str | None = None
    errors: tuple[PythonError, ...] = ()
    widen: bool = True
    identity: Any = None
    parity: str = ""
    contiguous: bool = False
    derivative: d.Derivative = d.BY_GRAPH

    def expand(self, body: KernelBody, *vals: KernelValue, **attrs: Any) -> KernelValue:
        """The formula on values of the loop's dtypes (16-bit floats as `widen` says)."""
        return self.formulas[dtype_kind(vals[0].dtype)](*vals, **attrs)


def resolve_op_row_dtypes(op: Op | str, dtypes: rules.DTypes, dtype: DType | None = None) -> rules.Loop:
    """(dtypes of the loop's inputs, dtype of its result), as NumPy promotes.

    dtypes: a dtype each, or int, float or complex for a weak Python scalar. dtype: as the ufunc's argument `dtype=`.
    Raises TypeError where there is no such loop.
    """
    row = OPS[op] if isinstance(op, str) else op
    try:
        return row.types(dtypes, dtype)
    except rules.NoLoop as error:
        given = ", ".join(d.__name__ if isinstance(d, type) else str(d) for d in dtypes)
        asked = "" if dtype is None else f" with dtype={dtype}"
        reason = f": {error}" if str(error) else ""
        raise TypeError(f"{row.name} does not take ({given}){asked}{reason}") from None


def _formulas_by_kind(every: Formula | None, formulas: Mapping[str, Formula]) -> dict[str, Formula]:
    """Formulas by kind: `i` stands for unsigned too, `every` for all kinds that have none of their own."""
    kinds = dict(formulas)
    if "i" in kinds:
        kinds.setdefault("u", kinds["i"])
    return kinds if every is None else dict.fromkeys("biufc", every) | kinds


def _ufunc_row(
    ufunc: np.ufunc,
    cost: float,
    every: Formula | None = None,
    *,
    operator: str | None = None,
    errors: tuple[PythonError, ...] = (),
    widen: bool = True,
    parity: str = "",
    derivative: d.Derivative,
    **formulas: Formula,
) -> Op:
    kinds, rule = _formulas_by_kind(every, formulas), rules.ufunc_promotion_rule(ufunc)
    name, arity = ufunc.__name__, ufunc.nin
    return Op(
        name, "map", arity, ufunc, rule, kinds, cost, operator, errors, widen, parity=parity, derivative=derivative
    )


def _ufunc_output_row(
    name: str, ufunc: np.ufunc, number: int, cost: float, formula: Formula, *, derivative: d.Derivative
) -> Op:
    rule, reference = rules.ufunc_promotion_rule(ufunc, number), ref.ufunc_output_reference(ufunc, number)
    return Op(name, "map", ufunc.nin, reference, rule, {"f": formula}, cost, derivative=derivative)


def _custom_op_table_row(
    name: str,
    arity: int,
    reference: Callable[..., Any],
    rule: rules.Rule,
    cost: float,
    every: Formula | None = None,
    *,
    widen: bool = True,
    parity: str = "",
    derivative: d.Derivative,
    **formulas: Formula,
) -> Op:
    kinds = _formulas_by_kind(every, formulas)
    return Op(name, "map", arity, reference, rule, kinds, cost, widen=widen, parity=parity, derivative=derivative)


def _reduction_row(reference: Callable[..., Any], rule: rules.Rule, identity: Any = None) -> Op:
    return Op(reference.__name__, "reduce", 1, reference, rule, identity=identity)


def _same_value_formula(x: KernelValue) -> KernelValue:
    return x


def _is_zero_to_a_negative_power(a: Any, b: Any, result: Any) -> Any:
    negative = b < 0
    return negative if negative is False else (a == 0) & negative


def _is_finite_to_an_infinite_power(a: Any, b: Any, result: Any) -> Any:
    infinite: Any = float("inf")
    return (abs(result) == infinite) & (abs(a) != infinite) & (abs(b) != infinite) & (a != 0)


# of results that are ints of Python's, whether they have more than 64 bits, and wrapped


def _is_int_product_beyond_int64(a: Any, b: Any, result: Any) -> Any:
    """Nearly so many count: a float says so."""
    return abs(a * 1.0 * b) >= 9.2e18


def _is_int_power_beyond_int64(a: Any, b: Any, result: Any) -> Any:
    """Nearly so many count: a float says so."""
    return abs(a * 1.0) ** b >= 9.2e18


def _int_beyond_int64(where: Callable[..., Any]) -> tuple[PythonError, ...]:
    return (PythonError(OverflowError, TOO_MANY_BITS, where, wraps=True),)


_ZERO_DIVISION = (PythonError(ZeroDivisionError, "division by zero", lambda a, b, result: b == 0),)
_NEGATIVE_SHIFT = (PythonError(ValueError, "negative shift count", lambda a, b, result: b < 0),)
_SUM = _int_beyond_int64(lambda a, b, result: ((a ^ result) & (b ^ result)) < 0)
_DIFFERENCE = _int_beyond_int64(lambda a, b, result: ((a ^ b) & (a ^ result)) < 0)
_NEGATED = _int_beyond_int64(lambda a, result: (result == a) & (a != 0))
_MAGNITUDE = _int_beyond_int64(lambda a, result: result < 0)
_PRODUCT = _int_beyond_int64(_is_int_product_beyond_int64)
_LEFT_SHIFT = (*_NEGATIVE_SHIFT, *_int_beyond_int64(lambda a, b, result: (result >> b) != a))
_POWER = (
    PythonError(ZeroDivisionError, "0.0 cannot be raised to a negative power", _is_zero_to_a_negative_power),
    PythonError(OverflowError, "(34, 'Numerical result out of range')", _is_finite_to_an_infinite_power),
    *_int_beyond_int64(_is_int_power_beyond_int64),
)
_ARITHMETIC = (
    _ufunc_row(
        np.add,
        1,
        KernelValue.__add__,
        b=KernelValue.__or__,
        c=cx.add_formula,
        operator="__add__",
        errors=_SUM,
        derivative=d.ADD,
    ),
    _ufunc_row(
        np.subtract,
        1,
        KernelValue.__sub__,
        c=cx.subtract_formula,
        operator="__sub__",
        errors=_DIFFERENCE,
        derivative=d.SUBTRACT,
    ),
    _ufunc_row(
        np.multiply,
        1,
        KernelValue.__mul__,
        b=KernelValue.__and__,
        c=cx.multiply_formula,
        errors=_PRODUCT,
        operator="__mul__",
        derivative=d.MULTIPLY,
    ),
    _ufunc_row(
        np.divide,
        4,
        KernelValue.__truediv__,
        c=cx.divide_formula,
        operator="__truediv__",
        errors=_ZERO_DIVISION,
        derivative=d.DIVIDE,
    ),
    _ufunc_row(
        np.floor_divide,
        12,
        i=it.floor_divide_formula,
        f=fl.floor_divide_formula,
        operator="__floordiv__",
        errors=_ZERO_DIVISION,
        derivative=d.ZERO,
    ),
    _ufunc_row(
        np.remainder,
        12,
        i=it.remainder_formula,
        f=fl.remainder_formula,
        operator="__mod__",
        errors=_ZERO_DIVISION,
        derivative=d.REMAINDER,
    ),
    _ufunc_row(np.fmod, 10, i=it.fmod_formula, f=KernelValue.fmod, derivative=d.FMOD),
    _ufunc_row(
        np.negative,
        1,
        KernelValue.__neg__,
        f=fl.negative_formula,
        c=cx.negative_formula,
        operator="__neg__",
        errors=_NEGATED,
        widen=False,
        derivative=d.NEGATIVE,
    ),
    _ufunc_row(np.positive, 0, _same_value_formula, operator="__pos__", widen=False, derivative=d.SAME),
    _ufunc_row(
        np.absolute,
        1,
        _same_value_formula,
        i=it.absolute_formula,
        f=fl.absolute_formula,
        c=cx.absolute_formula,
        operator="__abs__",
        errors=_MAGNITUDE,
        widen=False,
        derivative=d.ABSOLUTE,
    ),
    _ufunc_row(np.fabs, 1, f=fl.absolute_formula, widen=False, derivative=d.ABSOLUTE),
    _ufunc_row(np.sign, 3, i=it.sign_formula, f=fl.sign_formula, c=cx.sign_formula, derivative=d.SIGN),
    _ufunc_row(np.square, 1, fl.square_formula, c=cx.square_formula, derivative=d.SQUARE),
    _ufunc_row(
        np.reciprocal,
        4,
        i=it.reciprocal_formula,
        f=fl.reciprocal_formula,
        c=cx.reciprocal_formula,
        derivative=d.RECIPROCAL,
    ),
    _ufunc_row(
        np.power,
        30,
        i=it.power_formula,
        f=KernelValue.pow,
        c=an.power_formula,
        operator="__pow__",
        errors=_POWER,
        derivative=d.POWER,
    ),
    _ufunc_row(np.float_power, 30, f=KernelValue.pow, c=an.power_formula, derivative=d.POWER),
    _ufunc_row(np.conjugate, 0, _same_value_formula, c=cx.conjugate_formula, widen=False, derivative=d.CONJUGATE),
    _ufunc_row(np.heaviside, 4, f=fl.heaviside_formula, derivative=d.HEAVISIDE),
    _ufunc_row(np.gcd, 40, i=it.gcd_formula, derivative=d.ZERO),
    _ufunc_row(np.lcm, 45, i=it.lcm_formula, derivative=d.ZERO),
)

_BITS = (
    _ufunc_row(np.bitwise_and, 1, KernelValue.__and__, operator="__and__", derivative=d.ZERO),
    _ufunc_row(np.bitwise_or, 1, KernelValue.__or__, operator="__or__", derivative=d.ZERO),
    _ufunc_row(np.bitwise_xor, 1, KernelValue.__xor__, operator="__xor__", derivative=d.ZERO),
    _ufunc_row(np.invert, 1, KernelValue.__invert__, operator="__invert__", derivative=d.ZERO),
    _ufunc_row(np.left_shift, 2, i=it.left_shift_formula, operator="__lshift__", errors=_LEFT_SHIFT, derivative=d.ZERO),
    _ufunc_row(
        np.right_shift, 2, i=it.right_shift_formula, operator="__rshift__", errors=_NEGATIVE_SHIFT, derivative=d.ZERO
    ),
    _ufunc_row(np.bitwise_count, 2, i=it.bitwise_count_formula, derivative=d.ZERO),
)

_COMPARISONS = (
    _ufunc_row(
        np.less,
        1,
        b=it.bool_less_formula,
        i=it.less_formula,
        f=KernelValue.__lt__,
        c=cx.less,
        operator="__lt__",
        derivative=d.ZERO,
    ),
    _ufunc_row(
        np.less_equal,
        1,
        b=it.bool_less_equal_formula,
        i=it.less_equal_formula,
        f=KernelValue.__le__,
        c=cx.less_equal,
        operator="__le__",
        derivative=d.ZERO,
    ),
    _ufunc_row(
        np.greater,
        1,
        b=it.bool_greater_formula,
        i=it.greater_formula,
        f=KernelValue.__gt__,
        c=cx.greater,
        operator="__gt__",
        derivative=d.ZERO,
    ),
    _ufunc_row(
        np.greater_equal,
        1,
        b=it.bool_greater_equal_formula,
        i=it.greater_equal_formula,
        f=KernelValue.__ge__,
        c=cx.greater_equal,
        operator="__ge__",
        derivative=d.ZERO,
    ),
    _ufunc_row(
        np.equal,
        1,
        b=it.bool_equal_formula,
        i=it.equal_formula,
        f=KernelValue.eq,
        c=cx.equal_formula,
        operator="__eq__",
        derivative=d.ZERO,
    ),
    _ufunc_row(
        np.not_equal,
        1,
        b=KernelValue.__xor__,
        i=it.not_equal_formula,
        f=KernelValue.ne,
        c=cx.not_equal_formula,
        operator="__ne__",
        derivative=d.ZERO,
    ),
    _ufunc_row(np.logical_and, 1, it.logical_and_formula, derivative=d.ZERO),
    _ufunc_row(np.logical_or, 1, it.logical_or_formula, derivative=d.ZERO),
    _ufunc_row(np.logical_xor, 1, it.logical_xor_formula, derivative=d.ZERO),
    _ufunc_row(np.logical_not, 1, it.logical_not_formula, derivative=d.ZERO),
    _ufunc_row(np.maximum, 1, KernelValue.maximum, b=KernelValue.__or__, c=cx.maximum_formula, derivative=d.EXTREMUM),
    _ufunc_row(np.minimum, 1, KernelValue.minimum, b=KernelValue.__and__, c=cx.minimum_formula, derivative=d.EXTREMUM),
    _ufunc_row(
        np.fmax,
        2,
        KernelValue.maximum,
        b=KernelValue.__or__,
        f=fl.fmax_formula,
        c=cx.fmax_formula,
        derivative=d.EXTREMUM,
    ),
    _ufunc_row(
        np.fmin,
        2,
        KernelValue.minimum,
        b=KernelValue.__and__,
        f=fl.fmin_formula,
        c=cx.fmin_formula,
        derivative=d.EXTREMUM,
    ),
    _ufunc_row(
        np.isnan,
        1,
        it.constant_false_formula,
        f=fl.isnan_formula,
        c=cx.any_part_formula(fl.isnan_formula),
        derivative=d.ZERO,
    ),
    _ufunc_row(
        np.isinf,
        1,
        it.constant_false_formula,
        f=fl.isinf_formula,
        c=cx.any_part_formula(fl.isinf_formula),
        derivative=d.ZERO,
    ),
    _ufunc_row(
        np.isfinite,
        1,
        it.constant_true_formula,
        f=fl.isfinite_formula,
        c=cx.all_parts_formula(fl.isfinite_formula),
        derivative=d.ZERO,
    ),
    _ufunc_row(np.signbit, 1, f=fl.signbit_formula, widen=False, derivative=d.ZERO),
)

_ROUNDING = (
    _ufunc_row(np.floor, 1, _same_value_formula, f=KernelValue.floor, derivative=d.ZERO),
    _ufunc_row(np.ceil, 1, _same_value_formula, f=KernelValue.ceil, derivative=d.ZERO),
    _ufunc_row(np.trunc, 1, _same_value_formula, f=KernelValue.trunc, derivative=d.ZERO),
    _ufunc_row(np.rint, 1, f=KernelValue.rint, c=cx.formula_on_both_parts(KernelValue.rint), derivative=d.ZERO),
    _ufunc_row(np.copysign, 1, f=fl.copysign_formula, widen=False, derivative=d.COPYSIGN),
    _ufunc_row(np.nextafter, 6, f=fl.nextafter_formula, widen=False, derivative=d.ZERO),
    _ufunc_row(np.spacing, 3, f=fl.spacing_formula, widen=False, derivative=d.ZERO),
    _ufunc_row(np.ldexp, 10, f=fl.ldexp_formula, derivative=d.LDEXP),
    _ufunc_output_row("frexp_mantissa", np.frexp, 0, 6, fl.frexp_mantissa_formula, derivative=d.FREXP),
    _ufunc_output_row("frexp_exp", np.frexp, 1, 6, fl.frexp_exp_formula, derivative=d.ZERO),
    _ufunc_output_row("modf_frac", np.modf, 0, 3, fl.modf_frac_formula, derivative=d.SAME),
    _ufunc_output_row("modf_int", np.modf, 1, 1, fl.modf_int_formula, derivative=d.ZERO),
)

_FUNCTIONS = (
    _ufunc_row(np.sqrt, 4, f=KernelValue.sqrt, c=an.sqrt_formula, derivative=d.SQRT),
    _ufunc_row(np.cbrt, 15, parity="odd", f=KernelValue.cbrt, derivative=d.CBRT),
    _ufunc_row(np.exp, 10, f=KernelValue.exp, c=an.exp_formula, derivative=d.EXP),
    _ufunc_row(np.exp2, 10, f=KernelValue.exp2, c=an.exp2_formula, derivative=d.EXP2),
    _ufunc_row(np.expm1, 12, f=KernelValue.expm1, c=an.expm1_formula, derivative=d.EXPM1),
    _ufunc_row(np.log, 10, f=KernelValue.log, c=an.log_formula, derivative=d.LOG),
    _ufunc_row(np.log2, 10, f=KernelValue.log2, c=an.log2_formula, derivative=d.LOG2),
    _ufunc_row(np.log10, 10, f=KernelValue.log10, c=an.log10_formula, derivative=d.LOG10),
    _ufunc_row(np.log1p, 12, f=KernelValue.log1p, c=an.log1p_formula, derivative=d.LOG1P),
    _ufunc_row(np.logaddexp, 24, f=fl.logaddexp_formula, derivative=d.LOGADDEXP),
    _ufunc_row(np.logaddexp2, 24, f=fl.logaddexp2_formula, derivative=d.LOGADDEXP2),
    _ufunc_row(np.sin, 15, parity="odd", f=KernelValue.sin, c=an.sin, derivative=d.SIN),
    _ufunc_row(np.cos, 15, parity="even", f=KernelValue.cos, c=an.cos_formula, derivative=d.COS),
    _ufunc_row(np.tan, 20, parity="odd", f=KernelValue.tan, c=an.tan, derivative=d.TAN),
    _ufunc_row(np.arcsin, 15, parity="odd", f=KernelValue.asin, c=an.arcsin_formula, derivative=d.ARCSIN),
    _ufunc_row(np.arccos, 15, f=KernelValue.acos, c=an.arccos_formula, derivative=d.ARCCOS),
    _ufunc_row(np.arctan, 15, parity="odd", f=KernelValue.atan, c=an.arctan, derivative=d.ARCTAN),
    _ufunc_row(np.arctan2, 20, f=KernelValue.atan2, derivative=d.ARCTAN2),
    _ufunc_row(np.sinh, 15, parity="odd", f=KernelValue.sinh, c=an.sinh_formula, derivative=d.SINH),
    _ufunc_row(np.cosh, 15, parity="even", f=KernelValue.cosh, c=an.cosh_formula, derivative=d.COSH),
    _ufunc_row(np.tanh, 15, parity="odd", f=KernelValue.tanh, c=an.tanh_formula, derivative=d.TANH),
    _ufunc_row(np.arcsinh, 20, parity="odd", f=KernelValue.asinh, c=an.arcsinh, derivative=d.ARCSINH),
    _ufunc_row(np.arccosh, 20, f=KernelValue.acosh, c=an.arccosh_formula, derivative=d.ARCCOSH),
    _ufunc_row(np.arctanh, 20, parity="odd", f=KernelValue.atanh, c=an.arctanh_formula, derivative=d.ARCTANH),
    _ufunc_row(np.hypot, 8, f=KernelValue.hypot, derivative=d.HYPOT),
    _ufunc_row(np.degrees, 1, f=fl.rad2deg_formula, derivative=d.DEGREES),
    _ufunc_row(np.rad2deg, 1, f=fl.rad2deg_formula, derivative=d.DEGREES),
    _ufunc_row(np.radians, 1, f=fl.deg2rad_formula, derivative=d.RADIANS),
    _ufunc_row(np.deg2rad, 1, f=fl.deg2rad_formula, derivative=d.RADIANS),
)

_OWN = (
    _custom_op_table_row(
        "approximate_divide",
        2,
        np.divide,
        rules.ufunc_promotion_rule(np.divide),
        4,
        f=KernelValue.approx_div,
        c=cx.divide_formula,
        derivative=d.DIVIDE,
    ),
    _custom_op_table_row(
        "erf", 1, ref.erf, rules.float_promotion_rule, 15, parity="odd", f=KernelValue.erf, derivative=d.ERF
    ),
    _custom_op_table_row("erfc", 1, ref.erfc, rules.float_promotion_rule, 20, f=KernelValue.erfc, derivative=d.ERFC),
    _custom_op_table_row(
        "lgamma", 1, ref.lgamma, rules.float_promotion_rule, 30, f=fl.lgamma_formula, derivative=d.LGAMMA
    ),
    _custom_op_table_row(
        "sigmoid", 1, ref.sigmoid, rules.float_promotion_rule, 16, f=fl.sigmoid_formula, derivative=d.SIGMOID
    ),
    _custom_op_table_row(
        "relu", 1, ref.relu_reference, rules.common_kind_promotion_rule("iuf"), 1, fl.relu_formula, derivative=d.RELU
    ),
    _custom_op_table_row(
        "gelu", 1, ref.gelu, rules.float_promotion_rule, 24, f=fl.gelu_formula, derivative=d.GELU, widen=False
    ),
    _custom_op_table_row(
        "barrier",
        2,
        ref.first_argument_reference,
        rules.common_kind_promotion_rule(),
        0,
        lambda x, after: x,
        widen=False,
        derivative=d.BARRIER,
    ),
    _custom_op_table_row(
        "stop_gradient",
        1,
        ref.same_value_reference,
        rules.common_kind_promotion_rule(),
        0,
        _same_value_formula,
        widen=False,
        derivative=d.ZERO,
    ),
    _custom_op_table_row(
        "where", 3, np.where, rules.where_promotion_rule, 1, kernel_select, widen=False, derivative=d.WHERE
    ),
    _custom_op_table_row(
        "cast",
        1,
        ref.cast_reference,
        rules.cast_promotion_rule,
        1,
        _same_value_formula,
        widen=False,
        derivative=d.BY_GRAPH,
    ),
    _custom_op_table_row(
        "clip",
        3,
        ref.clip_reference,
        rules.clip_promotion_rule,
        2,
        fl.clip_formula,
        b=lambda x, low, high: (x | low) & high,
        c=cx.clip_formula,
        derivative=d.CLIP,
    ),
    _custom_op_table_row(
        "real",
        1,
        np.real,
        rules.real_part_dtype_rule,
        0,
        _same_value_formula,
        c=lambda z: z.re,
        widen=False,
        derivative=d.REAL,
    ),
    _custom_op_table_row(
        "imag",
        1,
        np.imag,
        rules.real_part_dtype_rule,
        0,
        lambda x: x.const(0),
        c=lambda z: z.im,
        widen=False,
        derivative=d.IMAG,
    ),
    _custom_op_table_row(
        "complex",
        2,
        ref.complex_reference,
        rules.complex_promotion_rule,
        0,
        f=complex_kernel_value,
        widen=False,
        derivative=d.COMPLEX,
    ),
    _custom_op_table_row(
        "angle",
        1,
        ref.angle_reference,
        rules.angle_promotion_rule,
        20,
        f=fl.angle_formula,
        c=cx.angle_formula,
        derivative=d.ANGLE,
    ),
    _custom_op_table_row(
        "nan_to_num",
        1,
        ref.nan_to_num_reference,
        rules.common_kind_promotion_rule(),
        6,
        it.same_value_formula,
        f=fl.nan_to_num_formula,
        c=cx.nan_to_num_formula,
        widen=False,
        derivative=d.NAN_TO_NUM,
    ),
    # A user's scalar function, without and with loops: nobody knows how often those run.
    _custom_op_table_row(
        "call",
        -1,
        ref.user_call_reference,
        rules.no_arguments_promotion_rule,
        30,
        kernel_user_function_call,
        widen=False,
        derivative=d.BY_GRAPH,
    ),
    _custom_op_table_row(
        "call_loop",
        -1,
        ref.user_call_reference,
        rules.no_arguments_promotion_rule,
        1e5,
        kernel_user_function_call,
        widen=False,
        derivative=d.BY_GRAPH,
    ),
    _custom_op_table_row(
        "philox",
        6,
        rnd.philox_reference,
        rules.raw_bits_promotion_rule("u4"),
        20,
        widen=False,
        u=rnd.philox_formula,
        derivative=d.ZERO,
    ),
    _custom_op_table_row(
        "high_bits",
        1,
        ref.high_bits_reference,
        rules.raw_bits_promotion_rule("f4"),
        1,
        widen=False,
        f=fl.high_bits_formula,
        derivative=d.ZERO,
    ),
    _custom_op_table_row(
        "multiply_high",
        2,
        rnd.multiply_high_reference,
        rules.raw_bits_promotion_rule("u4", "u8"),
        4,
        u=rnd.multiply_high_formula,
        derivative=d.ZERO,
    ),
)

_REDUCTIONS = (
    _reduction_row(np.sum, rules.sum_promotion_rule, 0),
    _reduction_row(np.prod, rules.sum_promotion_rule, 1),
    _reduction_row(np.min, rules.common_kind_promotion_rule()),
    _reduction_row(np.max, rules.common_kind_promotion_rule()),
    _reduction_row(np.any, rules.bool_promotion_rule, False),
    _reduction_row(np.all, rules.bool_promotion_rule, True),
    _reduction_row(np.argmin, rules.index_promotion_rule),
    _reduction_row(np.argmax, rules.index_promotion_rule),
)

_STRUCTURE = (
    Op("input", "source", 0, cost=0),
    Op("number", "source", 0, cost=0),
    Op("const", "source", 0, cost=0),
    Op("index", "source", 0),
    Op("placeholder", "source", 0, cost=0),  # of a body that is being traced
    Op("gather", "gather", -1, cost=8),
    Op("slice", "view", 1, types=rules.common_kind_promotion_rule(), cost=0),
    Op("permute", "view", 1, types=rules.common_kind_promotion_rule(), cost=0),
    Op("broadcast", "view", 1, types=rules.common_kind_promotion_rule(), cost=0),
    Op("reshape", "view", 1, types=rules.common_kind_promotion_rule(), cost=0),
    Op("windows", "view", 1, types=rules.common_kind_promotion_rule(), cost=0),
    Op("concat", "assembly", -1, types=rules.common_kind_promotion_rule()),
    Op("update", "assembly", 2, types=rules.common_kind_promotion_rule()),
    Op("assemble", "assembly", -1, types=rules.common_kind_promotion_rule()),
    Op("matmul", "library", -1, np.matmul, rules.ufunc_promotion_rule(np.matmul), operator="__matmul__"),
    Op("host", "library", -1, cost=2),
    Op("loop", "library", -1, cost=0),
    Op("branch", "library", -1, cost=0),
    Op("kernel", "library", -1, cost=20, contiguous=True),
    Op("place", "device", 1, ref.place_op_reference, rules.common_kind_promotion_rule(), cost=0),
    *(
        Op(name, "device", 1, cost=0)  # what the devices of a mesh exchange; each is written out for its mesh
        for name in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "from_root", "exchange")
    ),
    Op("custom", "library", -1, cost=0),  # its first results, whose derivatives the user has given
    Op("sequential", "library", -1, cost=20, contiguous=True),
)

_SPECIAL = tuple(
    _custom_op_table_row(
        name,
        len(row.partials),
        sp.scipy_function(name),
        rules.single_or_double_promotion_rule,
        row.cost,
        f=row.expansion,
        parity=row.parity,
        derivative=d.partial_derivative_formulas(*row.partials),
    )
    for name, row in sp.SPECIAL_FUNCTIONS.items()
)

OPS: dict[str, Op] = {
    row.name: row
    for rows in (_ARITHMETIC, _BITS, _COMPARISONS, _ROUNDING, _FUNCTIONS, _OWN, _SPECIAL, _REDUCTIONS, _STRUCTURE)
    for row in rows
}

# The row of each result of a NumPy ufunc.
UFUNC_PARTS: dict[np.ufunc, tuple[str, ...]] = {
    row.numpy: (row.name,) for row in OPS.values() if row.kind == "map" and isinstance(row.numpy, np.ufunc)
} | {
    np.divmod: ("floor_divide", "remainder"),
    np.modf: ("modf_frac", "modf_int"),
    np.frexp: ("frexp_mantissa", "frexp_exp"),
}
