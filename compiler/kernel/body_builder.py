"""The body builder: formulas over `KernelValue` become instructions of primitives, in phases.

Two things exist only at the edges: a complex value is a pair of reals, and float16 and bfloat16 are computed in
float32 and rounded back after every op (`KernelBody.apply`), as NumPy does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from functools import cache
from typing import Any, Protocol

import numpy as np

from ...runtime.core.frozen import replace
from ...runtime.program.user_function import UserFunction
from ..core.types import BOOL, FLOAT32, HALVES, INT64, DType, bits_of_dtype, integer_dtype, real_dtype
from .loop_nest import EFFECTS, LOOP, POINT, Instr, Phase, Reduction
from .primitives import PRIMITIVES, STORED


@cache
def primitive_dtype(name: str, dtypes: tuple[DType, ...], chosen: DType | None = None) -> DType:
    """The dtype that a primitive gives (`chosen` where it can give several). Raises TypeError if it does not fit."""
    primitive, operand = PRIMITIVES[name], dtypes[-1]
    if (
        len(dtypes) != primitive.arity
        or operand not in primitive.accepts
        or any(d != operand for d in dtypes[primitive.same_from :])
        or any(d != BOOL for d in dtypes[: primitive.same_from])
    ):
        raise TypeError(f"primitive {name} does not take ({', '.join(map(str, dtypes))})")
    if primitive.result is None:
        return operand
    if primitive.result != "any":
        return primitive.result
    if chosen not in STORED or (name == "bitcast" and (chosen == BOOL or chosen.itemsize != operand.itemsize)):
        raise TypeError(f"primitive {name} does not give {chosen} from {operand}")
    return chosen


def _kernel_value_method(name: str) -> Callable[..., KernelValue]:
    def emit_primitive_on_value(self: KernelValue, *others: KernelValue | float) -> KernelValue:
        return self.body.emit(name, self, *others)

    return emit_primitive_on_value


def _reflected_kernel_value_method(name: str) -> Callable[[KernelValue, float], KernelValue]:
    return lambda self, other: self.body.emit(name, other, self)


class KernelValue:
    """One value of a body: its number (two for complex: real and imaginary part) and dtype.

    Python operators and methods write primitives; a Python number takes the dtype of its partner. Complex values have
    only `re`, `im` and `parts`. `==` is Python's; the primitive is `a.eq(b)`.
    """

    __slots__ = ("body", "dtype", "numbers")

    def __init__(self, body: KernelBody, numbers: tuple[int, ...], dtype: DType) -> None:
        self.body, self.numbers, self.dtype = body, numbers, dtype

    def __repr__(self) -> str:
        return f"<{self.dtype} {', '.join(f'v{n}' for n in self.numbers)}>"

    @property
    def re(self) -> KernelValue:
        return KernelValue(self.body, self.numbers[:1], real_dtype(self.dtype))

    @property
    def im(self) -> KernelValue:
        return KernelValue(self.body, self.numbers[1:], real_dtype(self.dtype))

    @property
    def parts(self) -> tuple[KernelValue, KernelValue]:
        return self.re, self.im

    @property
    def bits(self) -> int:
        return bits_of_dtype(self.dtype)

    @property
    def known(self) -> Any:
        """The value of a real constant, else None. A number that is looked at stays in the text: the formula is its."""
        return self.body.constant(self)

    def const(self, value: Any) -> KernelValue:
        """A constant of this value's dtype."""
        return self.body.const(value, self.dtype)

    def cast(self, dtype: DType) -> KernelValue:
        return self.body.cast(self, dtype)

    def bitcast(self, dtype: DType) -> KernelValue:
        return self if dtype == self.dtype else self.body.emit("bitcast", self, dtype=dtype)

    def as_bits(self, signed: bool = True) -> KernelValue:
        """The same bits as an integer."""
        return self.bitcast(integer_dtype(self.dtype, signed))

    __add__, __sub__, __mul__, __truediv__, __neg__ = map(_kernel_value_method, ("add", "sub", "mul", "div", "neg"))
    __radd__, __rsub__, __rmul__, __rtruediv__ = map(_reflected_kernel_value_method, ("add", "sub", "mul", "div"))

    def __and__(self, other: KernelValue | int) -> KernelValue:
        for value in (self, other):
            if isinstance(value, KernelValue):
                self.body.constant(value)  # a mask stays in the text: it tells which bits are known
        return self.body.emit("and", self, other)

    def __or__(self, other: KernelValue | int) -> KernelValue:
        return self.body.emit("or", self, other)

    __xor__, __invert__, __lshift__, __rshift__ = map(_kernel_value_method, ("xor", "not", "shl", "shr"))
    __lt__, __le__, __gt__, __ge__ = map(_kernel_value_method, ("lt", "le", "gt", "ge"))
    eq, ne = map(_kernel_value_method, ("eq", "ne"))
    quot, rem, gcd, ipow = map(_kernel_value_method, ("quot", "rem", "gcd", "ipow"))
    mulhi, popcount = map(_kernel_value_method, ("mulhi", "popcount"))
    abs, sqrt, floor, ceil, trunc, rint = map(_kernel_value_method, ("abs", "sqrt", "floor", "ceil", "trunc", "rint"))
    copysign, fma, maximum, minimum, approx_div = map(
        _kernel_value_method, ("copysign", "fma", "maximum", "minimum", "approx_div")
    )
    exp, exp2, expm1, log, log2 = map(_kernel_value_method, ("exp", "exp2", "expm1", "log", "log2"))
    log10, log1p, sin, cos, tan = map(_kernel_value_method, ("log10", "log1p", "sin", "cos", "tan"))
    asin, acos, atan, sinh, cosh = map(_kernel_value_method, ("asin", "acos", "atan", "sinh", "cosh"))
    tanh, asinh, acosh, atanh, cbrt = map(_kernel_value_method, ("tanh", "asinh", "acosh", "atanh", "cbrt"))
    erf, erfc, lgamma, tgamma = map(_kernel_value_method, ("erf", "erfc", "lgamma", "tgamma"))
    pow, atan2, hypot, fmod = map(_kernel_value_method, ("pow", "atan2", "hypot", "fmod"))

    def __bool__(self) -> bool:
        raise TypeError("a value of a kernel's body has no truth value; write kernel_select(condition, a, b)")


def kernel_select(condition: KernelValue, a: KernelValue | float, b: KernelValue | float) -> KernelValue:
    """`a` where the condition holds, else `b`; complex values part by part."""
    return condition.body.select(condition, a, b)


def complex_kernel_value(re: KernelValue, im: KernelValue | float) -> KernelValue:
    """The complex value of two reals of one dtype."""
    return re.body.pair(re, im)


def kernel_user_function_call(*args: KernelValue, function: UserFunction, part: int) -> KernelValue:
    """Result `part` of a user's scalar function."""
    return args[0].body.call(function, part, args)


class KernelFormula(Protocol):
    """What `Body.apply` needs of a row of the op table."""

    @property
    def widen(self) -> bool:
        """Whether 16-bit floats are computed in float32 (else the expansion takes them as they are)."""

    def expand(self, body: KernelBody, *vals: KernelValue, **attrs: Any) -> KernelValue:
        """The formula."""


class KernelBody:
    """Builds the phases of one kernel. Equal instructions are numbered once; what no store or reduction needs goes.

    Values made in a LOOP phase are seen in that phase only. Outside `begin_phase` nothing can be emitted.
    """

    def __init__(self) -> None:
        self._instrs: list[Instr] = []
        self._phases: list[tuple[str, int, tuple[Reduction, ...]]] = []  # kind, end, reductions
        self._kind: str | None = None
        self._point_numbers: dict[Instr, int] = {}  # of POINT phases
        self._local: dict[Instr, int] = {}  # of the LOOP phase now open
        self.fixed_literals: set[Instr] = set()  # literals whose value a formula depends on

    # Phases

    def begin_phase(self, kind: str) -> int:
        """Opens a phase (POINT or LOOP) and gives its number."""
        if self._kind is not None or kind not in (POINT, LOOP):
            raise ValueError(f"cannot begin phase {kind!r} in {self._kind!r}")
        self._kind = kind
        return len(self._phases)

    def end_phase(self, reductions: Sequence[Reduction] = ()) -> None:
        """Closes the phase; `Reduction("sum", x.dtype, x.numbers)` reduces the value x of a LOOP."""
        if self._kind is None or (reductions and self._kind != LOOP):
            raise ValueError(f"cannot end phase {self._kind!r} with {len(reductions)} reductions")
        self._phases.append((self._kind, len(self._instrs), tuple(reductions)))
        self._kind = None
        self._local.clear()

    def finish(self) -> tuple[Phase, ...]:
        """The phases, without the instructions that no store and no reduction needs, renumbered."""
        if self._kind is not None:
            raise ValueError("a phase is open")
        live = [instr.op in EFFECTS for instr in self._instrs]
        for _, _, reductions in self._phases:
            for reduction in reductions:
                for v in reduction.values:
                    live[v] = True
        for v in reversed(range(len(live))):
            if live[v]:
                for a in self._instrs[v].args:
                    live[a] = True
        number: dict[int, int] = {}
        phases: list[Phase] = []
        begin = 0
        for kind, end, reductions in self._phases:
            first, kept = len(number), []
            for v in range(begin, end):
                if live[v]:
                    number[v] = len(number)
                    instr = self._instrs[v]
                    if len(number) <= v:  # something before it went
                        args = tuple([number[a] for a in instr.args])
                        instr = Instr(instr.op, instr.dtype, args, instr.attr)
                    kept.append(instr)
            moved = (Reduction(r.combine, r.dtype, tuple(number[v] for v in r.values)) for r in reductions)
            phases.append(Phase(kind, first, tuple(kept), tuple(moved)))
            begin = end
        return tuple(phases)

    # The one door

    def _number_instruction(self, instr: Instr) -> int:
        known = self._point_numbers
        if self._kind != POINT:
            if self._kind is None:
                raise ValueError("no phase is open")
            found = known.get(instr)
            if found is not None:
                return found
            known = self._local
        number = known.setdefault(instr, len(self._instrs))
        if number == len(self._instrs):
            self._instrs.append(instr)
        return number

    def _source_instruction(self, op: str, dtype: DType, attr: Any) -> KernelValue:
        return KernelValue(self, (self._number_instruction(Instr(op, dtype, (), attr)),), dtype)

    def emit(self, name: str, *operands: KernelValue | float, dtype: DType | None = None) -> KernelValue:
        """One primitive. Python numbers become constants of the dtype of the last operand that is a value.

        Raises TypeError where the primitive does not take these dtypes.
        """
        vals: Any = operands
        for x in operands:
            if type(x) is not KernelValue:
                partner = next(v.dtype for v in reversed(operands) if isinstance(v, KernelValue))
                vals = [v if isinstance(v, KernelValue) else self.const(v, partner) for v in operands]
                break
        result = primitive_dtype(name, tuple([v.dtype for v in vals]), dtype)
        return KernelValue(
            self, (self._number_instruction(Instr(name, result, tuple([v.numbers[0] for v in vals]))),), result
        )

    # Sources and stores

    def const(self, value: Any, dtype: DType) -> KernelValue:
        """A constant. An integer must fit its dtype (OverflowError)."""
        if dtype.kind == "c":
            number = complex(value)
            return self.pair(self.const(number.real, real_dtype(dtype)), self.const(number.imag, real_dtype(dtype)))
        return self._source_instruction("const", dtype, np.array(value, dtype).tobytes())

    def constant(self, value: KernelValue) -> Any:
        """The NumPy scalar of a real constant, else None. A literal so looked at is a constant from now on."""
        instr = self._instrs[value.numbers[0]]
        if len(value.numbers) != 1 or instr.op not in ("const", "literal"):
            return None
        if instr.op == "literal":
            self.fixed_literals.add(instr)
        return np.frombuffer(instr.attr, instr.dtype)[0]

    def literal(self, value: Any, dtype: DType) -> KernelValue:
        """A number of the program, as a parameter of the kernel where it can be. See `lift_constants_of_loop_nest`."""
        if dtype.kind == "c":
            number = complex(value)
            return self.pair(self.literal(number.real, real_dtype(dtype)), self.literal(number.imag, real_dtype(dtype)))
        if is_fixed_kernel_constant(value, dtype):
            return self.const(value, dtype)
        if dtype in HALVES:  # no parameter has such a dtype; the cast back is exact
            return self.literal(np.float32(value), FLOAT32).cast(dtype)
        return self._source_instruction("literal", dtype, np.array(value, dtype).tobytes())

    def load(self, operand: int, dtype: DType) -> KernelValue:
        """The element of an operand of this dtype; both parts of a complex one."""
        real = real_dtype(dtype)
        parts = [self._source_instruction("load", real, (operand, part)) for part in range(1 + (dtype.kind == "c"))]
        return KernelValue(self, tuple(p.numbers[0] for p in parts), dtype)

    def gather(self, operand: int, dtype: DType, offset: KernelValue) -> KernelValue:
        """The element that lies `offset` (int64) elements beyond the one `load` gives. dtype: the operand's."""
        real, args = real_dtype(dtype), offset.numbers
        parts = range(1 + (dtype.kind == "c"))
        return KernelValue(
            self, tuple(self._number_instruction(Instr("gather", real, args, (operand, part))) for part in parts), dtype
        )

    def report(self, operand: int, value: KernelValue, condition: KernelValue) -> None:
        """Stores one of the values for which the condition holds. They go to an int64 operand that does not move."""
        self._instrs.append(Instr("report", INT64, (value.numbers[0], condition.numbers[0]), (operand, 0)))

    def store(self, operand: int, value: KernelValue) -> None:
        """Stores all parts; later loads of this operand are made anew."""
        if self._kind is None:
            raise ValueError("no phase is open")
        for part, number in enumerate(value.numbers):
            self._instrs.append(Instr("store", real_dtype(value.dtype), (number,), (operand, part)))
        for seen in (self._point_numbers, self._local):
            for instr in [i for i in seen if i.op in ("load", "gather") and i.attr[0] == operand]:
                del seen[instr]

    def scalar(self, number: int, dtype: DType) -> KernelValue:
        """A run-time number; a complex one is the scalars `number` and `number + 1`."""
        if dtype.kind == "c":
            return self.pair(self.scalar(number, real_dtype(dtype)), self.scalar(number + 1, real_dtype(dtype)))
        return self._source_instruction("scalar", dtype, number)

    def index(self, axis: int) -> KernelValue:
        return self._source_instruction("index", INT64, axis)

    def size(self, axis: int) -> KernelValue:
        return self._source_instruction("size", INT64, axis)

    def result(self, phase: int, reduction: int, part: int = 0) -> KernelValue:
        """A finished reduction of an earlier phase. Part 1 of argmin and argmax is the int64 index."""
        dtype = INT64 if part else self._phases[phase][2][reduction].dtype
        return self._source_instruction("result", dtype, (phase, reduction, part))

    def call(self, function: UserFunction, part: int, args: Sequence[KernelValue]) -> KernelValue:
        """Result `part` of a function of values of its arguments' dtypes."""
        dtypes = [np.dtype(r) for r in function.results]
        first = sum(1 + (d.kind == "c") for d in dtypes[:part])
        real, numbers = real_dtype(dtypes[part]), tuple(n for a in args for n in a.numbers)
        halves = range(first, first + 1 + (dtypes[part].kind == "c"))
        found = tuple(self._number_instruction(Instr("call", real, numbers, (function, half))) for half in halves)
        return KernelValue(self, found, dtypes[part])

    # Compositions

    def pair(self, re: KernelValue, im: KernelValue | float) -> KernelValue:
        im = im if isinstance(im, KernelValue) else re.const(im)
        return KernelValue(self, re.numbers + im.numbers, np.dtype(f"c{2 * re.dtype.itemsize}"))

    def select(self, condition: KernelValue, a: KernelValue | float, b: KernelValue | float) -> KernelValue:
        partner = a if isinstance(a, KernelValue) else b
        if not isinstance(partner, KernelValue):
            raise TypeError("select of two Python numbers; give one of them a dtype")
        a, b = (x if isinstance(x, KernelValue) else self.const(x, partner.dtype) for x in (a, b))
        if a.numbers == b.numbers:
            return a
        if len(a.numbers) == 2:
            return self.pair(self.emit("select", condition, a.re, b.re), self.emit("select", condition, a.im, b.im))
        return self.emit("select", condition, a, b)

    def cast(self, x: KernelValue, dtype: DType) -> KernelValue:
        """NumPy's astype: complex to real drops the imaginary part; 16-bit floats convert through float32.

        float64 to float16 rounds once, to bfloat16 twice (through float32), as NumPy and ml_dtypes do.
        """
        if dtype == x.dtype:
            return x
        if x.dtype.kind == "c":
            if dtype.kind == "c":
                return self.pair(x.re.cast(real_dtype(dtype)), x.im.cast(real_dtype(dtype)))
            return x.re.ne(0.0) | x.im.ne(0.0) if dtype == BOOL else x.re.cast(dtype)
        if dtype.kind == "c":
            re = x.cast(real_dtype(dtype))
            return self.pair(re, 0.0)
        if FLOAT32 not in (x.dtype, dtype) and (
            x.dtype in HALVES or (dtype in HALVES and not _primitive_cast_rounds_once(x.dtype, dtype))
        ):
            x = self.cast(x, FLOAT32)
        return x if x.dtype == dtype else self.emit("cast", x, dtype=dtype)

    def apply(
        self, op: KernelFormula, args: Iterable[KernelValue], dtype: DType, attrs: Mapping[str, Any] | None = None
    ) -> KernelValue:
        """A row of the op table on values of its loop dtypes, giving `dtype`."""
        vals = list(args)
        if op.widen:
            vals = [v.cast(FLOAT32) if v.dtype in HALVES else v for v in vals]
        return op.expand(self, *vals, **(attrs or {})).cast(dtype)


def _primitive_cast_rounds_once(source: DType, target: DType) -> bool:
    """Whether a cast to a 16-bit float rounds once: float64 to float16."""
    return source.itemsize == 8 and source.kind == "f" and target == np.float16


# The program's own numbers become parameters of the kernel, so that its text, and the machine code, does not depend on
# them: `0.1 * x` and `0.2 * x` are one kernel. In the text stay numbers that instructions have a short form for
# (x * 2 is x + x, a select against 0 is a mask), those that are not finite, and those that a formula looked at
# (`KernelValue.known`: x // 7 is a product, x ** 5 a few).
COMMON = (0.0, 0.5, 1.0, 2.0, -0.5, -1.0, -2.0)


def is_fixed_kernel_constant(value: Any, dtype: DType) -> bool:
    """Whether a number (real) is a constant of the text whatever is done with it."""
    number = np.asarray(value, dtype)
    return dtype == BOOL or float(number) in COMMON or not np.isfinite(np.float64(number))


def lift_constants_of_loop_nest(
    phases: Sequence[Phase], fixed: Set[Instr], first: int
) -> tuple[tuple[Phase, ...], list[Instr]]:
    """The phases with `scalar first`, `scalar first + 1`, ... in place of the literals that are not in `fixed`, and
    those literals in that order; the others become constants."""
    numbers: dict[Instr, int] = {}

    def numbered_scalar(instr: Instr) -> Instr:
        if instr.op != "literal":
            return instr
        if instr in fixed:
            return replace(instr, op="const")
        return replace(instr, op="scalar", attr=numbers.setdefault(instr, first + len(numbers)))

    lifted = tuple(replace(p, instrs=tuple(map(numbered_scalar, p.instrs))) for p in phases)
    return lifted, list(numbers)
