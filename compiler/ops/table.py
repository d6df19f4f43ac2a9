"""The op table: one row per op, with its NumPy meaning, its dtype rule, its formula in primitives and its cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from ...runtime.core.frozen import dataclass, field
from ..core.types import DType, WeakType, dtype_kind
from ..kernel.body_builder import KernelBody, KernelValue, call_user_function, complex_pair, select
from . import complex as cx
from . import complex_functions as an
from . import derivatives as d
from . import dtype_rules as rules
from . import integer as it
from . import numpy_reference as ref
from . import philox as rnd
from . import real as fl

Formula: TypeAlias = Callable[..., KernelValue]


@dataclass(frozen=True, slots=True)
class Op:
    """One row.

    kind: `map` (elementwise), `reduce`, `view`, `assembly` (parts stored in place), `source`, `library`, `device` (what
    passes between devices), or `gather`: elementwise in all arguments but the first, whose elements are read where the
    others say.
    arity: number of arguments, -1 for any. numpy: the reference, attributes as keywords; None where the graph's
    evaluator has its own. types: the dtype rule; use `resolve`. formulas: kind of the first argument (`b i u f c`) ->
    the expansion on values of the loop's dtypes. cost: flop-equivalents an element (an add is 1).
    operator: the Python method that it answers. widen: 16-bit floats are computed in float32.
    identity: of a reduction, or None where NumPy refuses an empty one; how a kernel joins two results: `COMBINERS`.
    parity: `odd` where f(-x) is -f(x) for real floats, `even` where it is f(x).
    contiguous: of a library call: its arrays have no gaps.
    derivative: of an elementwise row its formulas; the rules of the others are in `compiler/derive`.
    """

    name: str
    kind: str
    arity: int
    numpy: Callable[..., Any] | None = None
    types: rules.Rule = rules.no_arguments_rule
    formulas: Mapping[str, Formula] = field(default_factory=dict, repr=False, compare=False)
    cost: float = 1
    operator: str | None = None
    widen: bool = True
    identity: Any = None
    parity: str = ""
    contiguous: bool = False
    derivative: d.Derivative = d.BY_GRAPH

    def expand(self, body: KernelBody, *vals: KernelValue, **attrs: Any) -> KernelValue:
        """The formula on values of the loop's dtypes (16-bit floats as `widen` says)."""
        return self.formulas[dtype_kind(vals[0].dtype)](*vals, **attrs)


def resolve_loop_dtypes(op: Op | str, dtypes: Sequence[DType | WeakType], dtype: DType | None = None) -> rules.Loop:
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


def _kinds(every: Formula | None, formulas: Mapping[str, Formula]) -> dict[str, Formula]:
    """Formulas by kind: `i` stands for unsigned too, `every` for all kinds that have none of their own."""
    kinds = dict(formulas)
    if "i" in kinds:
        kinds.setdefault("u", kinds["i"])
    return kinds if every is None else dict.fromkeys("biufc", every) | kinds


def _ufunc(
    ufunc: np.ufunc,
    cost: float,
    every: Formula | None = None,
    *,
    operator: str | None = None,
    widen: bool = True,
    parity: str = "",
    derivative: d.Derivative,
    **formulas: Formula,
) -> Op:
    kinds, rule = _kinds(every, formulas), rules.ufunc_rule(ufunc)
    name, arity = ufunc.__name__, ufunc.nin
    return Op(name, "map", arity, ufunc, rule, kinds, cost, operator, widen, parity=parity, derivative=derivative)


def _part(name: str, ufunc: np.ufunc, number: int, cost: float, formula: Formula, *, derivative: d.Derivative) -> Op:
    rule, reference = rules.ufunc_rule(ufunc, number), ref.ufunc_output(ufunc, number)
    return Op(name, "map", ufunc.nin, reference, rule, {"f": formula}, cost, derivative=derivative)


def _own(
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
    kinds = _kinds(every, formulas)
    return Op(name, "map", arity, reference, rule, kinds, cost, widen=widen, parity=parity, derivative=derivative)


def _reduction(reference: Callable[..., Any], rule: rules.Rule, identity: Any = None) -> Op:
    return Op(reference.__name__, "reduce", 1, reference, rule, identity=identity)


def _it(x: KernelValue) -> KernelValue:
    return x


_ARITHMETIC = (
    _ufunc(np.add, 1, KernelValue.__add__, b=KernelValue.__or__, c=cx.add, operator="__add__", derivative=d.ADD),
    _ufunc(np.subtract, 1, KernelValue.__sub__, c=cx.subtract, operator="__sub__", derivative=d.SUBTRACT),
    _ufunc(
        np.multiply,
        1,
        KernelValue.__mul__,
        b=KernelValue.__and__,
        c=cx.multiply,
        operator="__mul__",
        derivative=d.MULTIPLY,
    ),
    _ufunc(np.divide, 4, KernelValue.__truediv__, c=cx.divide, operator="__truediv__", derivative=d.DIVIDE),
    _ufunc(np.floor_divide, 12, i=it.floor_divide, f=fl.floor_divide, operator="__floordiv__", derivative=d.ZERO),
    _ufunc(np.remainder, 12, i=it.remainder, f=fl.remainder, operator="__mod__", derivative=d.REMAINDER),
    _ufunc(np.fmod, 10, i=it.fmod, f=KernelValue.fmod, derivative=d.FMOD),
    _ufunc(
        np.negative,
        1,
        KernelValue.__neg__,
        f=fl.negative,
        c=cx.negative,
        operator="__neg__",
        widen=False,
        derivative=d.NEGATIVE,
    ),
    _ufunc(np.positive, 0, _it, operator="__pos__", widen=False, derivative=d.SAME),
    _ufunc(
        np.absolute,
        1,
        _it,
        i=it.absolute,
        f=fl.absolute,
        c=cx.absolute,
        operator="__abs__",
        widen=False,
        derivative=d.ABSOLUTE,
    ),
    _ufunc(np.fabs, 1, f=fl.absolute, widen=False, derivative=d.ABSOLUTE),
    _ufunc(np.sign, 3, i=it.sign, f=fl.sign, c=cx.sign, derivative=d.SIGN),
    _ufunc(np.square, 1, fl.square, c=cx.square, derivative=d.SQUARE),
    _ufunc(np.reciprocal, 4, i=it.reciprocal, f=fl.reciprocal, c=cx.reciprocal, derivative=d.RECIPROCAL),
    _ufunc(np.power, 30, i=it.power, f=KernelValue.pow, c=an.power, operator="__pow__", derivative=d.POWER),
    _ufunc(np.float_power, 30, f=KernelValue.pow, c=an.power, derivative=d.POWER),
    _ufunc(np.conjugate, 0, _it, c=cx.conjugate, widen=False, derivative=d.CONJUGATE),
    _ufunc(np.heaviside, 4, f=fl.heaviside, derivative=d.HEAVISIDE),
    _ufunc(np.gcd, 40, i=it.gcd, derivative=d.ZERO),
    _ufunc(np.lcm, 45, i=it.lcm, derivative=d.ZERO),
)

_BITS = (
    _ufunc(np.bitwise_and, 1, KernelValue.__and__, operator="__and__", derivative=d.ZERO),
    _ufunc(np.bitwise_or, 1, KernelValue.__or__, operator="__or__", derivative=d.ZERO),
    _ufunc(np.bitwise_xor, 1, KernelValue.__xor__, operator="__xor__", derivative=d.ZERO),
    _ufunc(np.invert, 1, KernelValue.__invert__, operator="__invert__", derivative=d.ZERO),
    _ufunc(np.left_shift, 2, i=it.left_shift, operator="__lshift__", derivative=d.ZERO),
    _ufunc(np.right_shift, 2, i=it.right_shift, operator="__rshift__", derivative=d.ZERO),
    _ufunc(np.bitwise_count, 2, i=it.bitwise_count, derivative=d.ZERO),
)

_COMPARISONS = (
    _ufunc(
        np.less, 1, b=it.bool_less, i=it.less, f=KernelValue.__lt__, c=cx.less, operator="__lt__", derivative=d.ZERO
    ),
    _ufunc(
        np.less_equal,
        1,
        b=it.bool_less_equal,
        i=it.less_equal,
        f=KernelValue.__le__,
        c=cx.less_equal,
        operator="__le__",
        derivative=d.ZERO,
    ),
    _ufunc(
        np.greater,
        1,
        b=it.bool_greater,
        i=it.greater,
        f=KernelValue.__gt__,
        c=cx.greater,
        operator="__gt__",
        derivative=d.ZERO,
    ),
    _ufunc(
        np.greater_equal,
        1,
        b=it.bool_greater_equal,
        i=it.greater_equal,
        f=KernelValue.__ge__,
        c=cx.greater_equal,
        operator="__ge__",
        derivative=d.ZERO,
    ),
    _ufunc(
        np.equal, 1, b=it.bool_equal, i=it.equal, f=KernelValue.eq, c=cx.equal, operator="__eq__", derivative=d.ZERO
    ),
    _ufunc(
        np.not_equal,
        1,
        b=KernelValue.__xor__,
        i=it.not_equal,
        f=KernelValue.ne,
        c=cx.not_equal,
        operator="__ne__",
        derivative=d.ZERO,
    ),
    _ufunc(np.logical_and, 1, it.logical_and, derivative=d.ZERO),
    _ufunc(np.logical_or, 1, it.logical_or, derivative=d.ZERO),
    _ufunc(np.logical_xor, 1, it.logical_xor, derivative=d.ZERO),
    _ufunc(np.logical_not, 1, it.logical_not, derivative=d.ZERO),
    _ufunc(np.maximum, 1, KernelValue.maximum, b=KernelValue.__or__, c=cx.maximum, derivative=d.EXTREMUM),
    _ufunc(np.minimum, 1, KernelValue.minimum, b=KernelValue.__and__, c=cx.minimum, derivative=d.EXTREMUM),
    _ufunc(np.fmax, 2, KernelValue.maximum, b=KernelValue.__or__, f=fl.fmax, c=cx.fmax, derivative=d.EXTREMUM),
    _ufunc(np.fmin, 2, KernelValue.minimum, b=KernelValue.__and__, f=fl.fmin, c=cx.fmin, derivative=d.EXTREMUM),
    _ufunc(np.isnan, 1, it.constant_false, f=fl.isnan, c=cx.any_component(fl.isnan), derivative=d.ZERO),
    _ufunc(np.isinf, 1, it.constant_false, f=fl.isinf, c=cx.any_component(fl.isinf), derivative=d.ZERO),
    _ufunc(np.isfinite, 1, it.constant_true, f=fl.isfinite, c=cx.all_components(fl.isfinite), derivative=d.ZERO),
    _ufunc(np.signbit, 1, f=fl.signbit, widen=False, derivative=d.ZERO),
)

_ROUNDING = (
    _ufunc(np.floor, 1, _it, f=KernelValue.floor, derivative=d.ZERO),
    _ufunc(np.ceil, 1, _it, f=KernelValue.ceil, derivative=d.ZERO),
    _ufunc(np.trunc, 1, _it, f=KernelValue.trunc, derivative=d.ZERO),
    _ufunc(np.rint, 1, f=KernelValue.rint, c=cx.real_and_imaginary(KernelValue.rint), derivative=d.ZERO),
    _ufunc(np.copysign, 1, f=fl.copysign, widen=False, derivative=d.COPYSIGN),
    _ufunc(np.nextafter, 6, f=fl.nextafter, widen=False, derivative=d.ZERO),
    _ufunc(np.spacing, 3, f=fl.spacing, widen=False, derivative=d.ZERO),
    _ufunc(np.ldexp, 10, f=fl.ldexp, derivative=d.LDEXP),
    _part("frexp_mantissa", np.frexp, 0, 6, fl.frexp_mantissa, derivative=d.FREXP),
    _part("frexp_exp", np.frexp, 1, 6, fl.frexp_exp, derivative=d.ZERO),
    _part("modf_frac", np.modf, 0, 3, fl.modf_frac, derivative=d.SAME),
    _part("modf_int", np.modf, 1, 1, fl.modf_int, derivative=d.ZERO),
)

_FUNCTIONS = (
    _ufunc(np.sqrt, 4, f=KernelValue.sqrt, c=an.sqrt, derivative=d.SQRT),
    _ufunc(np.cbrt, 15, parity="odd", f=KernelValue.cbrt, derivative=d.CBRT),
    _ufunc(np.exp, 10, f=KernelValue.exp, c=an.exp, derivative=d.EXP),
    _ufunc(np.exp2, 10, f=KernelValue.exp2, c=an.exp2, derivative=d.EXP2),
    _ufunc(np.expm1, 12, f=KernelValue.expm1, c=an.expm1, derivative=d.EXPM1),
    _ufunc(np.log, 10, f=KernelValue.log, c=an.log, derivative=d.LOG),
    _ufunc(np.log2, 10, f=KernelValue.log2, c=an.log2, derivative=d.LOG2),
    _ufunc(np.log10, 10, f=KernelValue.log10, c=an.log10, derivative=d.LOG10),
    _ufunc(np.log1p, 12, f=KernelValue.log1p, c=an.log1p, derivative=d.LOG1P),
    _ufunc(np.logaddexp, 24, f=fl.logaddexp, derivative=d.LOGADDEXP),
    _ufunc(np.logaddexp2, 24, f=fl.logaddexp2, derivative=d.LOGADDEXP2),
    _ufunc(np.sin, 15, parity="odd", f=KernelValue.sin, c=an.sin, derivative=d.SIN),
    _ufunc(np.cos, 15, parity="even", f=KernelValue.cos, c=an.cos, derivative=d.COS),
    _ufunc(np.tan, 20, parity="odd", f=KernelValue.tan, c=an.tan, derivative=d.TAN),
    _ufunc(np.arcsin, 15, parity="odd", f=KernelValue.asin, c=an.arcsin, derivative=d.ARCSIN),
    _ufunc(np.arccos, 15, f=KernelValue.acos, c=an.arccos, derivative=d.ARCCOS),
    _ufunc(np.arctan, 15, parity="odd", f=KernelValue.atan, c=an.arctan, derivative=d.ARCTAN),
    _ufunc(np.arctan2, 20, f=KernelValue.atan2, derivative=d.ARCTAN2),
    _ufunc(np.sinh, 15, parity="odd", f=KernelValue.sinh, c=an.sinh, derivative=d.SINH),
    _ufunc(np.cosh, 15, parity="even", f=KernelValue.cosh, c=an.cosh, derivative=d.COSH),
    _ufunc(np.tanh, 15, parity="odd", f=KernelValue.tanh, c=an.tanh, derivative=d.TANH),
    _ufunc(np.arcsinh, 20, parity="odd", f=KernelValue.asinh, c=an.arcsinh, derivative=d.ARCSINH),
    _ufunc(np.arccosh, 20, f=KernelValue.acosh, c=an.arccosh, derivative=d.ARCCOSH),
    _ufunc(np.arctanh, 20, parity="odd", f=KernelValue.atanh, c=an.arctanh, derivative=d.ARCTANH),
    _ufunc(np.hypot, 8, f=KernelValue.hypot, derivative=d.HYPOT),
    _ufunc(np.degrees, 1, f=fl.rad2deg, derivative=d.DEGREES),
    _ufunc(np.rad2deg, 1, f=fl.rad2deg, derivative=d.DEGREES),
    _ufunc(np.radians, 1, f=fl.deg2rad, derivative=d.RADIANS),
    _ufunc(np.deg2rad, 1, f=fl.deg2rad, derivative=d.RADIANS),
)

_OWN = (
    _own("erf", 1, ref.erf, rules.float_rule, 15, parity="odd", f=KernelValue.erf, derivative=d.ERF),
    _own("erfc", 1, ref.erfc, rules.float_rule, 20, f=KernelValue.erfc, derivative=d.ERFC),
    _own("lgamma", 1, ref.lgamma, rules.float_rule, 30, f=fl.lgamma, derivative=d.LGAMMA),
    _own("sigmoid", 1, ref.sigmoid, rules.float_rule, 16, f=fl.sigmoid, derivative=d.SIGMOID),
    _own("relu", 1, ref.relu, rules.common_dtype_rule("iuf"), 1, fl.relu, derivative=d.RELU),
    _own("gelu", 1, ref.gelu, rules.float_rule, 24, f=fl.gelu, derivative=d.GELU),
    _own(
        "barrier",
        2,
        ref.first,
        rules.common_dtype_rule(),
        0,
        lambda x, after: x,
        widen=False,
        derivative=d.BARRIER,
    ),
    _own("stop_gradient", 1, ref.same, rules.common_dtype_rule(), 0, _it, widen=False, derivative=d.ZERO),
    _own("where", 3, np.where, rules.where_rule, 1, select, widen=False, derivative=d.WHERE),
    _own("cast", 1, ref.cast_reference, rules.cast_rule, 1, _it, widen=False, derivative=d.BY_GRAPH),
    _own(
        "clip",
        3,
        ref.clip,
        rules.clip_rule,
        2,
        fl.clip,
        b=lambda x, low, high: (x | low) & high,
        c=cx.clip,
        derivative=d.CLIP,
    ),
    _own("real", 1, np.real, rules.real_part_rule, 0, _it, c=lambda z: z.re, widen=False, derivative=d.REAL),
    _own(
        "imag",
        1,
        np.imag,
        rules.real_part_rule,
        0,
        lambda x: x.const(0),
        c=lambda z: z.im,
        widen=False,
        derivative=d.IMAG,
    ),
    _own("complex", 2, ref.complex_of, rules.complex_rule, 0, f=complex_pair, widen=False, derivative=d.COMPLEX),
    _own("angle", 1, ref.angle, rules.angle_rule, 20, f=fl.angle, c=cx.angle, derivative=d.ANGLE),
    _own(
        "nan_to_num",
        1,
        ref.nan_to_num,
        rules.common_dtype_rule(),
        6,
        it.same_value,
        f=fl.nan_to_num,
        c=cx.nan_to_num,
        widen=False,
        derivative=d.NAN_TO_NUM,
    ),
    # A user's scalar function, without and with loops: nobody knows how often those run.
    _own(
        "call",
        -1,
        ref.call_elementwise,
        rules.no_arguments_rule,
        30,
        call_user_function,
        widen=False,
        derivative=d.BY_GRAPH,
    ),
    _own(
        "call_loop",
        -1,
        ref.call_elementwise,
        rules.no_arguments_rule,
        1e5,
        call_user_function,
        widen=False,
        derivative=d.BY_GRAPH,
    ),
    _own(
        "philox", 6, rnd.philox_reference, rules.raw_bits_rule("u4"), 20, widen=False, u=rnd.philox, derivative=d.ZERO
    ),
    _own(
        "multiply_high",
        2,
        rnd.multiply_high_reference,
        rules.raw_bits_rule("u4", "u8"),
        4,
        u=rnd.multiply_high,
        derivative=d.ZERO,
    ),
)

_REDUCTIONS = (
    _reduction(np.sum, rules.sum_rule, 0),
    _reduction(np.prod, rules.sum_rule, 1),
    _reduction(np.min, rules.common_dtype_rule()),
    _reduction(np.max, rules.common_dtype_rule()),
    _reduction(np.any, rules.bool_rule, False),
    _reduction(np.all, rules.bool_rule, True),
    _reduction(np.argmin, rules.index_rule),
    _reduction(np.argmax, rules.index_rule),
)

_STRUCTURE = (
    Op("input", "source", 0, cost=0),
    Op("number", "source", 0, cost=0),
    Op("const", "source", 0, cost=0),
    Op("index", "source", 0),
    Op("placeholder", "source", 0, cost=0),  # of a body that is being traced
    Op("gather", "gather", -1, cost=8),
    Op("slice", "view", 1, types=rules.common_dtype_rule(), cost=0),
    Op("permute", "view", 1, types=rules.common_dtype_rule(), cost=0),
    Op("broadcast", "view", 1, types=rules.common_dtype_rule(), cost=0),
    Op("reshape", "view", 1, types=rules.common_dtype_rule(), cost=0),
    Op("windows", "view", 1, types=rules.common_dtype_rule(), cost=0),
    Op("concat", "assembly", -1, types=rules.common_dtype_rule()),
    Op("update", "assembly", 2, types=rules.common_dtype_rule()),
    Op("assemble", "assembly", -1, types=rules.common_dtype_rule()),
    Op("matmul", "library", -1, np.matmul, rules.ufunc_rule(np.matmul), operator="__matmul__"),
    Op("host", "library", -1, cost=2),
    Op("loop", "library", -1, cost=0),
    Op("branch", "library", -1, cost=0),
    Op("kernel", "library", -1, cost=20, contiguous=True),
    Op("place", "device", 1, ref.placed, rules.common_dtype_rule(), cost=0),
    *(
        Op(name, "device", 1, cost=0)  # what the devices of a mesh exchange; each is written out for its mesh
        for name in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "from_root", "exchange")
    ),
    Op("custom", "library", -1, cost=0),  # its first results, whose derivatives the user has given
    Op("sequential", "library", -1, cost=20, contiguous=True),
)

OPS: dict[str, Op] = {
    row.name: row
    for rows in (_ARITHMETIC, _BITS, _COMPARISONS, _ROUNDING, _FUNCTIONS, _OWN, _REDUCTIONS, _STRUCTURE)
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
