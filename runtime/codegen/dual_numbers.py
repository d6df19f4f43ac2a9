"""Dual numbers as numba types. A user's scalar function compiled with them gives its partial derivatives too.

A dual number is a value and what it changes by along each of some directions (Clifford, 1873; as in Griewank and
Walther, Evaluating Derivatives, 2008, chapter 3). The same Python function, given arguments of such a type, computes
both: numba infers the types of what depends on them, loops, branches and helper functions included. The parts of a dual
number may be dual numbers themselves, of another tag: that is the second order.

`lift` and `partial` are what `derivatives_of_user_function` writes calls of; they have a meaning in compiled
code alone.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np


def lift(x: Any, count: int, place: int, tag: int) -> Any:
    """x as a dual number of `count` directions, along which it changes as direction `place` says."""
    raise TypeError("lift is a function of compiled code")


def partial(x: Any, place: int, tag: int, bits: int) -> Any:
    """What x changes by along a direction of this tag, as a float of so many bits."""
    raise TypeError("partial is a function of compiled code")


def _jet_operator(name: str) -> Callable[..., DualJet]:
    return lambda jet, *others: jet.code.apply(name, jet, *others)


class DualJet:
    """A value in code that is being made: a number of numba's, or a dual one. parts: along each direction."""

    __slots__ = ("code", "parts", "tag", "type", "value")

    def __init__(
        self, code: DualNumberEmitter, type: Any, value: Any, parts: Sequence[DualJet] = (), tag: int = 0
    ) -> None:
        self.code, self.type, self.value, self.parts, self.tag = code, type, value, tuple(parts), tag

    __add__ = __radd__ = _jet_operator("add")
    __mul__ = __rmul__ = _jet_operator("mul")
    __sub__, __truediv__, __neg__ = map(_jet_operator, ("sub", "truediv", "neg"))

    def __rsub__(self, other: Any) -> DualJet:
        return self.code.apply("sub", other, self)

    def __rtruediv__(self, other: Any) -> DualJet:
        return self.code.apply("truediv", other, self)

    def of(self, name: str, *others: Any) -> DualJet:
        """A function of FUNCTIONS of this and of others."""
        return self.code.apply(name, self, *others)


Partial = Callable[..., Any]  # (*arguments, result) -> the factor of the argument's change
_RATE = 2 / math.sqrt(math.pi)

# name -> the function, and the partial of each argument; those without one have a result that is no dual number.
FUNCTIONS: dict[str, tuple[Any, tuple[Partial, ...]]] = {
    "add": (operator.add, (lambda x, y, r: 1.0, lambda x, y, r: 1.0)),
    "sub": (operator.sub, (lambda x, y, r: 1.0, lambda x, y, r: -1.0)),
    "mul": (operator.mul, (lambda x, y, r: y, lambda x, y, r: x)),
    "truediv": (operator.truediv, (lambda x, y, r: 1.0 / y, lambda x, y, r: -(r / y))),
    "mod": (operator.mod, (lambda x, y, r: 1.0, lambda x, y, r: -x.code.apply("floordiv", x, y))),
    "neg": (operator.neg, (lambda x, r: -1.0,)),
    "float": (float, (lambda x, r: 1.0,)),
    "pos": (operator.pos, (lambda x, r: 1.0,)),
    "abs": (abs, (lambda x, r: x.of("sign"),)),
    "fabs": (math.fabs, (lambda x, r: x.of("sign"),)),
    "copysign": (math.copysign, (lambda x, y, r: _dual_sign_of(x) * _dual_sign_of(y), lambda x, y, r: 0.0)),
    "sqrt": (math.sqrt, (lambda x, r: 0.5 / r,)),
    "exp": (math.exp, (lambda x, r: r,)),
    "expm1": (math.expm1, (lambda x, r: r + 1.0,)),
    "log": (math.log, (lambda x, r: 1.0 / x,)),
    "log2": (math.log2, (lambda x, r: 1.0 / (x * math.log(2)),)),
    "log10": (math.log10, (lambda x, r: 1.0 / (x * math.log(10)),)),
    "log1p": (math.log1p, (lambda x, r: 1.0 / (x + 1.0),)),
    "sin": (math.sin, (lambda x, r: x.of("cos"),)),
    "cos": (math.cos, (lambda x, r: -x.of("sin"),)),
    "tan": (math.tan, (lambda x, r: r * r + 1.0,)),
    "asin": (math.asin, (lambda x, r: 1.0 / (1.0 - x * x).of("sqrt"),)),
    "acos": (math.acos, (lambda x, r: -1.0 / (1.0 - x * x).of("sqrt"),)),
    "atan": (math.atan, (lambda x, r: 1.0 / (x * x + 1.0),)),
    "atan2": (math.atan2, (lambda y, x, r: x / (x * x + y * y), lambda y, x, r: -(y / (x * x + y * y)))),
    "hypot": (math.hypot, (lambda x, y, r: x / r, lambda x, y, r: y / r)),
    "sinh": (math.sinh, (lambda x, r: x.of("cosh"),)),
    "cosh": (math.cosh, (lambda x, r: x.of("sinh"),)),
    "tanh": (math.tanh, (lambda x, r: (1.0 - r) * (r + 1.0),)),
    "asinh": (math.asinh, (lambda x, r: 1.0 / (x * x + 1.0).of("sqrt"),)),
    "acosh": (math.acosh, (lambda x, r: 1.0 / ((x - 1.0).of("sqrt") * (x + 1.0).of("sqrt")),)),
    "atanh": (math.atanh, (lambda x, r: 1.0 / (1.0 - x * x),)),
    "erf": (math.erf, (lambda x, r: (-(x * x)).of("exp") * _RATE,)),
    "erfc": (math.erfc, (lambda x, r: (-(x * x)).of("exp") * -_RATE,)),
    "degrees": (math.degrees, (lambda x, r: 180 / math.pi,)),
    "radians": (math.radians, (lambda x, r: math.pi / 180,)),
    "pow": (
        operator.pow,
        (lambda x, y, r: _dual_partial_of_power_base(x, y), lambda x, y, r: _dual_partial_of_power_exponent(x, r)),
    ),
    "min": (
        min,
        (
            lambda x, y, r: _dual_partial_of_min_or_max(x, y, "le"),
            lambda x, y, r: _dual_partial_of_min_or_max(x, y, "gt"),
        ),
    ),
    "max": (
        max,
        (
            lambda x, y, r: _dual_partial_of_min_or_max(x, y, "ge"),
            lambda x, y, r: _dual_partial_of_min_or_max(x, y, "lt"),
        ),
    ),
    "select": (lambda c, x, y: x if c else y, (lambda c, x, y, r: 0.0,)),
    "sign": (lambda x: (x > 0) * 1.0 - (x < 0) * 1.0, ()),
    "floordiv": (operator.floordiv, ()),
    "floor": (math.floor, ()),
    "ceil": (math.ceil, ()),
    "trunc": (math.trunc, ()),
    "isnan": (math.isnan, ()),
    "isinf": (math.isinf, ()),
    "isfinite": (math.isfinite, ()),
    "int": (int, ()),
    "bool": (bool, ()),
    "round": (round, ()),
    **{name: (getattr(operator, name), ()) for name in ("lt", "le", "gt", "ge", "eq", "ne")},
}
# other names of these in a user's function
_ALIKE = "sqrt exp expm1 log log2 log10 log1p sin cos tan hypot sinh cosh tanh copysign"
SAME: dict[str, tuple[Any, ...]] = {
    **{name: (getattr(operator, f"i{name}"),) for name in ("add", "sub", "mul", "truediv", "floordiv", "mod")},
    "pow": (math.pow, pow, np.power, operator.ipow),
    "abs": (np.abs,),
    "fabs": (np.fabs,),
    "min": (np.minimum, np.fmin),
    "max": (np.maximum, np.fmax),
    "asin": (np.arcsin,),
    "acos": (np.arccos,),
    "atan": (np.arctan,),
    "atan2": (np.arctan2,),
    "asinh": (np.arcsinh,),
    "acosh": (np.arccosh,),
    "atanh": (np.arctanh,),
    "isnan": (np.isnan,),
    "isfinite": (np.isfinite,),
    "isinf": (np.isinf,),
    "sign": (np.sign,),
    **{name: (getattr(np, name),) for name in _ALIKE.split()},
}


def _dual_sign_of(x: DualJet) -> Any:
    """1 or -1, of zeros too."""
    return x.code.apply("copysign", 1.0, x)


def _dual_partial_of_power_base(x: DualJet, y: Any) -> Any:
    """y x^(y-1), and 0 for y = 0 whatever x is."""
    less = x.code.apply("sub", y, 1.0)
    none = x.code.apply("eq", y, 0.0)
    return y * x.code.select(none, 1.0, x.of("pow", x.code.select(none, 1.0, less)))


def _dual_partial_of_power_exponent(x: DualJet, r: DualJet) -> Any:
    """r log x, and 0 for x = 0, where all powers near are 0."""
    zero = x.of("eq", 0.0)
    return r * x.code.select(zero, 1.0, x).of("log")


def _dual_partial_of_min_or_max(x: DualJet, y: Any, relation: str) -> Any:
    return x.code.select(x.code.apply(relation, x, y), x.code.constant(1.0, x.type), 0.0)


class DualNumberEmitter:
    """Where code is made. In `context` and `builder` it is made indeed, without them only types are found out."""

    def __init__(self, api: Any, typing: Any, context: Any = None, builder: Any = None) -> None:
        self.api, self.typing, self.context, self.builder = api, typing, context, builder

    def jet_of_numba_value(self, type: Any, value: Any = None) -> DualJet:
        """A value of one of numba's types, taken apart."""
        type = self.api.types.unliteral(type)
        if not isinstance(type, self.api.Dual):
            return DualJet(self, type, value)
        if self.builder is None:
            inner = self.jet_of_numba_value(type.real)
            return DualJet(self, type, inner, [inner] * type.count, type.tag)
        struct = self.api.create_struct_proxy(type)(self.context, self.builder, value=value)
        parts = [
            self.jet_of_numba_value(type.real, self.builder.extract_value(struct.parts, i)) for i in range(type.count)
        ]
        return DualJet(self, type, self.jet_of_numba_value(type.real, struct.value), parts, type.tag)

    def numba_value_of_jet(self, jet: DualJet) -> Any:
        """The value of numba's type."""
        if not jet.tag or self.builder is None:
            return jet.value
        struct = self.api.create_struct_proxy(jet.type)(self.context, self.builder)
        struct.value = self.numba_value_of_jet(jet.value)
        struct.parts = self.api.pack_array(self.builder, [self.numba_value_of_jet(part) for part in jet.parts])
        return struct._getvalue()

    def constant(self, number: float, like: Any) -> DualJet:
        """A float, of the kind of floats that a type has."""
        real = self.innermost_float_type(like)
        real = real if isinstance(real, self.api.types.Float) else self.api.types.float64
        made = self.builder is not None
        return DualJet(self, real, self.context.get_constant(real, number) if made else None)

    def innermost_float_type(self, type: Any) -> Any:
        while isinstance(type, self.api.Dual):
            type = type.real
        return type

    def cast(self, jet: DualJet, to: Any) -> DualJet:
        """To a type that can hold it."""
        if jet.type == to:
            return jet
        if not isinstance(to, self.api.Dual):
            made = self.builder is not None
            return DualJet(self, to, self.context.cast(self.builder, jet.value, jet.type, to) if made else None)
        if jet.tag == to.tag:
            return DualJet(self, to, self.cast(jet.value, to.real), [self.cast(p, to.real) for p in jet.parts], to.tag)
        zero = self.cast(self.constant(0.0, to), to.real)
        return DualJet(self, to, self.cast(jet, to.real), [zero] * to.count, to.tag)

    def make_dual_number(self, value: DualJet, parts: Sequence[Any], tag: int) -> DualJet:
        """A value and its changes, all of one type."""
        jets = [p if isinstance(p, DualJet) else self.constant(p, value.type) for p in parts]
        floats = self.innermost_float_type(value.type)
        floats = floats if isinstance(floats, self.api.types.Float) else self.api.types.float64
        real = self.with_innermost_type(value.type, floats)
        for jet in jets:
            real = self.api.joined(real, self.with_innermost_type(jet.type, floats))
        type = self.api.Dual(real, len(jets), tag)
        fitted = [self.cast(self.cast_innermost_type(jet, floats), real) for jet in (value, *jets)]
        return DualJet(self, type, fitted[0], fitted[1:], tag)

    def with_innermost_type(self, type: Any, leaf: Any) -> Any:
        dual = isinstance(type, self.api.Dual)
        return self.api.Dual(self.with_innermost_type(type.real, leaf), type.count, type.tag) if dual else leaf

    def cast_innermost_type(self, jet: DualJet, leaf: Any) -> DualJet:
        """Made of another kind of numbers."""
        return self.cast(jet, self.with_innermost_type(jet.type, leaf))

    def apply(self, name: str, *given: Any) -> DualJet:
        """A function of FUNCTIONS of jets and floats: its value, and by the chain rule what it changes by."""
        known = next(g for g in given if isinstance(g, DualJet))
        like = next((g.type for g in given if isinstance(g, DualJet) and self.is_float(g)), known.type)
        jets = [g if isinstance(g, DualJet) else self.constant(g, like) for g in given]
        tags = [jet.tag for jet in jets if jet.tag]
        if not tags:
            return self.plain(name, jets)
        tag = min(tags)  # that of the function that is differentiated first is the outermost
        lower = [jet.value if jet.tag == tag else jet for jet in jets]
        value = self.apply(name, *lower)
        partials = FUNCTIONS[name][1]
        if not partials:
            return value
        count = next(len(jet.parts) for jet in jets if jet.tag == tag)
        total: list[Any] = [0.0] * count
        for place, jet in enumerate(jets):
            if jet.tag == tag:
                factor = partials[place](*lower, value)
                total = [
                    _add_dual_partials(old, _scale_dual_partial(factor, part))
                    for old, part in zip(total, jet.parts, strict=True)
                ]
        return self.make_dual_number(value, total, tag)

    def is_float(self, jet: DualJet) -> bool:
        return isinstance(self.innermost_float_type(jet.type), self.api.types.Float)

    def plain(self, name: str, jets: Sequence[DualJet]) -> DualJet:
        """The function on numba's own numbers, as numba has it."""
        if name == "sign":
            (x,) = jets
            less = self.select(x.of("lt", 0.0), -1.0, self.constant(0.0, x.type))
            return self.select(x.of("gt", 0.0), 1.0, less)
        if name in ("min", "max"):
            x, y = jets
            return self.select(y.of("lt" if name == "min" else "gt", x), y, x)
        types, api = tuple(jet.type for jet in jets), self.api
        if name == "truediv" and self.is_float(jets[0]) and types[0] == types[1]:
            made = self.builder is not None  # which raises nothing
            return DualJet(self, types[0], self.builder.fdiv(jets[0].value, jets[1].value) if made else None)
        function = self.typing.resolve_value_type(FUNCTIONS[name][0])
        signature = function.get_call_type(self.typing, types, {})
        if signature is None:
            raise api.TypingError(f"no {name} of {types}")
        if self.builder is None:
            return DualJet(self, signature.return_type, None)
        values = [self.cast(jet, to).value for jet, to in zip(jets, signature.args, strict=True)]
        return DualJet(
            self, signature.return_type, self.context.get_function(function, signature)(self.builder, values)
        )

    def select(self, condition: DualJet, a: Any, b: Any) -> DualJet:
        """a where the condition holds, else b; one of the two is a jet."""
        like = (a if isinstance(a, DualJet) else b).type
        first, second = (x if isinstance(x, DualJet) else self.constant(x, like) for x in (a, b))
        type = self.api.joined(first.type, second.type)
        first, second = self.cast(first, type), self.cast(second, type)
        if self.builder is None:
            return self.jet_of_numba_value(type)
        return self.jet_of_numba_value(
            type, self.builder.select(condition.value, self.numba_value_of_jet(first), self.numba_value_of_jet(second))
        )


def _scale_dual_partial(factor: Any, part: DualJet) -> Any:
    if not isinstance(factor, DualJet) and factor in (0.0, 1.0, -1.0):
        return 0.0 if factor == 0 else part if factor == 1 else -part
    return part * factor


def _add_dual_partials(a: Any, b: Any) -> Any:
    if not isinstance(a, DualJet) and a == 0.0:
        return b
    return a if not isinstance(b, DualJet) and b == 0.0 else a + b


# numba


# What of numba dual numbers are made with, and where numba for the CPU has it.
PARTS = {
    "types": "core",
    **dict.fromkeys(("create_struct_proxy", "pack_array"), "core.cgutils"),
    "Conversion": "core.typeconv",
    "TypingError": "core.errors",
    "signature": "core.typing",
    **dict.fromkeys(("AbstractTemplate", "infer_global"), "core.typing.templates"),
    **dict.fromkeys(("register_model", "models", "lower_cast", "lower_builtin"), "extending"),
}


def register_dual_number_type(parts: Mapping[str, Any]) -> None:
    """Makes dual numbers known to one of numba's targets.

    parts: by the names of PARTS."""
    api: Any = SimpleNamespace(**parts)
    types: Any = api.types
    kind: Any = types.Type

    class Dual(kind):  # type: ignore[misc]
        """A number of numba's or a dual number of a greater tag, and as many changes as directions."""

        def __init__(self, real: Any, count: int, tag: int) -> None:
            self.real, self.count, self.tag = real, count, tag
            super().__init__(name=f"Dual({real}, {count}, {tag})")

        def unify(self, typingctx: Any, other: Any) -> Any:
            numbers = isinstance(other, (Dual, types.Number, types.Boolean))
            return common_dual_type(self, types.unliteral(other)) if numbers else None

        def can_convert_from(self, typingctx: Any, other: Any) -> Any:
            return api.Conversion.promote if isinstance(other, (types.Number, types.Boolean)) else None

        def can_convert_to(self, typingctx: Any, other: Any) -> Any:
            wider = isinstance(other, Dual) and common_dual_type(self, other) == other
            return api.Conversion.promote if wider else None

    def common_dual_type(a: Any, b: Any) -> Any:
        """The type that holds both."""
        if a == b:
            return a
        tags = [t.tag for t in (a, b) if isinstance(t, Dual)]
        if not tags:
            floats = [t for t in (a, b) if isinstance(t, types.Float)]
            return max(floats, key=lambda t: t.bitwidth) if floats else types.float64
        tag = min(tags)
        count = next(t.count for t in (a, b) if isinstance(t, Dual) and t.tag == tag)
        reals = (t.real if isinstance(t, Dual) and t.tag == tag else t for t in (a, b))
        return Dual(common_dual_type(*reals), count, tag)

    api.Dual, api.joined = Dual, common_dual_type

    @api.register_model(Dual)
    class DualModel(api.models.StructModel):  # type: ignore[misc]
        def __init__(self, manager: Any, type: Any) -> None:
            members = [("value", type.real), ("parts", types.UniTuple(type.real, type.count))]
            super().__init__(manager, type, members)

    def convert_to_dual_number(context: Any, builder: Any, given: Any, to: Any, value: Any) -> Any:
        code = DualNumberEmitter(api, context.typing_context, context, builder)
        return code.numba_value_of_jet(
            code.cast(
                code.cast_innermost_type(code.jet_of_numba_value(given, value), code.innermost_float_type(to)), to
            )
        )

    for source in (types.Number, types.Boolean, Dual):
        api.lower_cast(source, Dual)(convert_to_dual_number)
    for name, (function, _) in FUNCTIONS.items():
        for each in (*(() if name in ("select", "sign") else (function,)), *SAME.get(name, ())):
            _register_dual_number_function(api, each, name)
    _register_dual_number_functions(api)


# what is computed of jets, and of the values of arguments that are literals
Compute = Callable[[DualNumberEmitter, Sequence[Any]], DualJet]


def _register_dual_number_function(api: Any, function: Any, name: str) -> None:
    """A function of dual numbers, beside numba's of others."""
    plain = (api.types.Number, api.types.Boolean)
    if FUNCTIONS[name][0] not in _OF_TWO:
        _register_numba_overload_on_duals(api, function, lambda code, jets: code.apply(name, *jets), [(api.Dual,)])
        return
    pairs = [(api.Dual, api.Dual), *((api.Dual, other) for other in plain), *((other, api.Dual) for other in plain)]
    _register_numba_overload_on_duals(api, function, lambda code, jets: code.apply(name, *jets), pairs)
    if function in (min, max):
        kinds = (api.Dual, *plain)
        threes = [(a, b, c) for a in kinds for b in kinds for c in kinds if api.Dual in (a, b, c)]
        _register_numba_overload_on_duals(
            api, function, lambda code, jets: _dual_min_or_max_of_three(code, name, jets), threes
        )


def _dual_min_or_max_of_three(code: DualNumberEmitter, name: str, jets: Sequence[DualJet]) -> DualJet:
    x, y, z = jets
    return code.apply(name, code.apply(name, x, y), z)


_OF_TWO = [function for function, partials in FUNCTIONS.values() if len(partials) == 2]
_OF_TWO += [operator.floordiv, *(getattr(operator, name) for name in ("lt", "le", "gt", "ge", "eq", "ne"))]


def _register_numba_overload_on_duals(
    api: Any, function: Any, compute: Compute, patterns: Sequence[tuple[Any, ...]], seed: int = 0
) -> None:
    """patterns: the classes of types that it takes. seed: how many arguments are dual numbers or become them; those
    that follow are literals."""

    def split_dual_and_literal_arguments(
        code: DualNumberEmitter, given: Sequence[Any], values: Sequence[Any]
    ) -> list[Any]:
        count = seed or len(given)
        jets = [code.jet_of_numba_value(t, v) for t, v in zip(given[:count], values, strict=False)]
        return [*jets, *(t.literal_value for t in given[count:])]

    class DualTemplate(api.AbstractTemplate):  # type: ignore[misc]
        key = function
        prefer_literal = bool(seed)

        def generic(self, given: Any, named: Any) -> Any:
            if named or not any(_numba_types_fit_dual_pattern(given, pattern) for pattern in patterns):
                return None
            code = DualNumberEmitter(api, self.context)
            return api.signature(
                compute(code, split_dual_and_literal_arguments(code, given, [None] * len(given))).type, *given
            )

    api.infer_global(function)(DualTemplate)

    def lower_dual_function(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        code = DualNumberEmitter(api, context.typing_context, context, builder)
        return code.numba_value_of_jet(compute(code, split_dual_and_literal_arguments(code, signature.args, values)))

    for pattern in patterns:
        api.lower_builtin(function, *pattern)(lower_dual_function)


def _numba_types_fit_dual_pattern(given: Sequence[Any], pattern: Sequence[Any]) -> bool:
    return len(given) == len(pattern) and all(isinstance(t, kind) for t, kind in zip(given, pattern, strict=True))


def _register_dual_number_functions(api: Any) -> None:
    """`lift` and `partial`."""

    def lift_to_dual_number(code: DualNumberEmitter, given: Sequence[Any]) -> DualJet:
        jet, count, place, tag = given
        return code.make_dual_number(jet, [float(i == place) for i in range(count)], tag)

    def take_partial_of_dual_number(code: DualNumberEmitter, given: Sequence[Any]) -> DualJet:
        jet, place, tag, bits = given
        real = {32: api.types.float32, 64: api.types.float64}[bits]
        return code.cast_innermost_type(jet.parts[place] if jet.tag == tag else code.constant(0.0, real), real)

    numbers = [(kind, *(api.types.Number,) * 3) for kind in (api.Dual, api.types.Number, api.types.Boolean)]
    _register_numba_overload_on_duals(api, lift, lift_to_dual_number, numbers, 1)
    _register_numba_overload_on_duals(api, partial, take_partial_of_dual_number, numbers, 1)
