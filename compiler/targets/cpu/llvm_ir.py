"""LLVM IR as text: a function being written, and values with operators.

A `Value` is the name of a scalar (`lanes == 1`) or of a vector. Operators on values append one instruction to the
function that is being written; a scalar meets a vector by being splatted. Nothing here knows a kernel. A module has
declarations and helper functions, each written once, and the metadata that all refer to.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache

import numpy as np

FLOATS = {"half": 16, "float": 32, "double": 64}
Number = int | float
LINE = 64  # bytes of a cache line

# Notes on instructions; what they refer to is in `llvm_module.METADATA`.
PLAIN, UNROLLED = 0, 1  # loops that are left as they are, or unrolled
UNLIKELY = ", !prof !5"
NONTEMPORAL = ", !nontemporal !6"
# Of every function: vectors may have 64 bytes (else two functions may pass them differently); their spills need an
# aligned stack.
ATTRIBUTES = 'alignstack(64) nounwind "min-legal-vector-width"="512" "prefer-vector-width"="512"'


def llvm_type_bits(elem: str) -> int:
    """The width of an element type in bits."""
    return FLOATS.get(elem) or int(elem[1:])


@lru_cache(256)
def llvm_type(elem: str, lanes: int) -> str:
    """`float`, or `<16 x float>` for several lanes."""
    return elem if lanes == 1 else f"<{lanes} x {elem}>"


def llvm_intrinsic_suffix(elem: str, lanes: int) -> str:
    """The suffix of an overloaded intrinsic: `f32`, `v16f32`."""
    short = f"f{FLOATS[elem]}" if elem in FLOATS else elem
    return short if lanes == 1 else f"v{lanes}{short}"


def llvm_constant(number: Number, elem: str, lanes: int = 1) -> str:
    """A constant; floats are written as the bits of the nearest value, so nothing is rounded twice."""
    if elem in FLOATS:
        if elem == "half":
            one = f"0xH{struct.pack('>e', number).hex().upper()}"
        else:
            nearest = float(np.float32(number)) if elem == "float" else number
            one = f"0x{struct.pack('>d', nearest).hex().upper()}"
    elif elem == "i1":
        one = "true" if number else "false"
    else:
        one = str(int(number))
    return one if lanes == 1 else f"splat ({elem} {one})"


class LlvmFunction:
    """The instructions of one function, in order; stack slots are kept apart and go first."""

    def __init__(self, module: LlvmModule) -> None:
        self.module = module
        self.lines: list[str] = []
        self.slots: list[str] = []
        self.count = 0
        self.label = "entry"

    def fresh(self, hint: str = "v") -> str:
        self.count += 1
        return f"{hint}{self.count}"

    def do(self, text: str) -> None:
        self.lines.append("  " + text)

    def let(self, text: str, elem: str, lanes: int = 1) -> LlvmValue:
        name = "%" + self.fresh()
        self.lines.append(f"  {name} = {text}")
        return LlvmValue(self, name, elem, lanes)

    def const(self, number: Number, elem: str, lanes: int = 1) -> LlvmValue:
        return LlvmValue(self, llvm_constant(number, elem, lanes), elem, lanes)

    def vector(self, numbers: list[int], elem: str) -> LlvmValue:
        return LlvmValue(self, "<" + ", ".join(f"{elem} {n}" for n in numbers) + ">", elem, len(numbers))

    def slot(self, kind: str, count: int = 1) -> LlvmValue:
        """The address of stack memory for `count` values of type `kind`. Promoted to a register where possible."""
        name = "%" + self.fresh("m")
        self.slots.append(f"  {name} = alloca {kind}, i64 {count}, align 64")
        return LlvmValue(self, name, "ptr")

    def block(self, label: str) -> None:
        self.lines.append(f"{label}:")
        self.label = label

    def jump(self, label: str) -> None:
        self.do(f"br label %{label}")

    @contextmanager
    def loop(
        self,
        start: LlvmValue | int,
        stop: LlvmValue | int,
        step: LlvmValue | int = 1,
        note: int | None = PLAIN,
        flags: str = "nuw nsw",
    ) -> Iterator[LlvmValue]:
        """Run the body for start, start + step, ... below stop (all i64). note: what LLVM may do with it (None: what it
        likes); flags: how no index wraps."""
        number = self.fresh("")
        head, body, latch, done = (f"{part}{number}" for part in ("head", "loop", "latch", "done"))
        i = LlvmValue(self, f"%i{number}", "i64")
        before = self.label
        self.jump(head)
        self.block(head)
        self.do(f"{i} = phi i64 [ {start}, %{before} ], [ %next{number}, %{latch} ]")
        self.do(f"br i1 {i < stop}, label %{body}, label %{done}")
        self.block(body)
        yield i
        self.jump(latch)
        self.block(latch)
        self.do(f"%next{number} = add {flags} i64 {i}, {step}")
        self.do(f"br label %{head}" + ("" if note is None else f", !llvm.loop !{note}"))
        self.block(done)

    def vectors(
        self,
        start: LlvmValue,
        stop: LlvmValue,
        lanes: int,
        write: Callable[[LlvmValue, LlvmValue | None, int], None],
        copies: int = 1,
    ) -> None:
        """Whole vectors from start below stop, so many copies in a turn while they last, then the rest under a mask.

        write: what is done from an index on, under a mask (None: in all lanes), as which copy."""
        position = start
        for many in sorted({copies, 1}, reverse=True):
            whole = position + ((stop - position) & -(lanes * many))
            with self.loop(position, whole, lanes * many) as i:
                for copy in range(many):
                    write(i + lanes * copy if copy else i, None, copy)
            position = whole
        with self.when(position < stop):
            write(position, llvm_mask_below(self, stop - position, lanes), 0)

    @contextmanager
    def when(self, condition: LlvmValue, weights: str = "") -> Iterator[None]:
        number = self.fresh("")
        self.do(f"br i1 {condition}, label %then{number}, label %end{number}{weights}")
        self.block(f"then{number}")
        yield
        self.jump(f"end{number}")
        self.block(f"end{number}")

    def fork(self, condition: LlvmValue, yes: Callable[[], None], no: Callable[[], None]) -> None:
        number = self.fresh("")
        self.do(f"br i1 {condition}, label %then{number}, label %else{number}")
        for label, write in ((f"then{number}", yes), (f"else{number}", no)):
            self.block(label)
            write()
            self.jump(f"end{number}")
        self.block(f"end{number}")

    def call(self, name: str, elem: str, *args: LlvmValue, lanes: int | None = None) -> LlvmValue:
        wide = max((a.lanes for a in args), default=1) if lanes is None else lanes
        return self.let(f"call {llvm_type(elem, wide)} {name}({', '.join(a.typed for a in args)})", elem, wide)

    def intrinsic(self, name: str, elem: str, *args: LlvmValue, flag: bool = False) -> LlvmValue:
        """Call `llvm.<name>`, overloaded on the result's type. `flag`: it has one more parameter, an i1, false."""
        lanes = max([a.lanes for a in args])
        wide = [a if a.lanes == lanes else a.splat(lanes) for a in args]
        full = f"@llvm.{name}.{llvm_intrinsic_suffix(elem, lanes)}"
        kinds, texts = [a.kind for a in wide] + ["i1"] * flag, [a.typed for a in wide] + ["i1 false"] * flag
        self.module.declare(full, f"{llvm_type(elem, lanes)} {full}({', '.join(kinds)})")
        return self.let(f"call {llvm_type(elem, lanes)} {full}({', '.join(texts)})", elem, lanes)

    def render(self, header: str) -> str:
        return "\n".join([f"{header} {ATTRIBUTES} {{", "entry:", *self.slots, *self.lines, "}"])


def _arithmetic_operator(op: str) -> Callable[[LlvmValue, LlvmValue | Number], LlvmValue]:
    return lambda self, other: self._arithmetic(op, other)


def _bit_operator(op: str) -> Callable[[LlvmValue, LlvmValue | Number], LlvmValue]:
    return lambda self, other: self.binary(op, other)


def _comparison(floats: str, integers: str) -> Callable[[LlvmValue, LlvmValue | Number], LlvmValue]:
    return lambda self, other: self.compare(floats if self.is_float else integers, other)


class LlvmValue:
    """A named value of `elem` type in `lanes` lanes; its operators write instructions."""

    __slots__ = ("elem", "f", "lanes", "text")

    def __init__(self, f: LlvmFunction, text: str, elem: str, lanes: int = 1) -> None:
        self.f, self.text, self.elem, self.lanes = f, text, elem, lanes

    def __str__(self) -> str:
        return self.text

    @property
    def kind(self) -> str:
        return llvm_type(self.elem, self.lanes)

    @property
    def typed(self) -> str:
        return f"{llvm_type(self.elem, self.lanes)} {self.text}"

    @property
    def is_float(self) -> bool:
        return self.elem in FLOATS

    def splat(self, lanes: int) -> LlvmValue:
        if self.lanes == lanes:
            return self
        assert self.lanes == 1, f"{self.kind} does not splat to {lanes} lanes"
        if not self.text.startswith("%"):
            return LlvmValue(self.f, f"splat ({self.elem} {self.text})", self.elem, lanes)
        one = self.f.let(f"insertelement {llvm_type(self.elem, lanes)} poison, {self.typed}, i64 0", self.elem, lanes)
        zeros = f"<{lanes} x i32> zeroinitializer"
        return self.f.let(f"shufflevector {one.typed}, {one.kind} poison, {zeros}", self.elem, lanes)

    def with_equal_lanes(self, other: LlvmValue | Number) -> tuple[LlvmValue, LlvmValue]:
        b = other if isinstance(other, LlvmValue) else self.f.const(other, self.elem, self.lanes)
        if self.lanes == b.lanes:
            return self, b
        lanes = max(self.lanes, b.lanes)
        return self.splat(lanes), b.splat(lanes)

    def binary(self, op: str, other: LlvmValue | Number) -> LlvmValue:
        a, b = self.with_equal_lanes(other)
        return self.f.let(f"{op} {llvm_type(a.elem, a.lanes)} {a.text}, {b.text}", a.elem, a.lanes)

    def _arithmetic(self, op: str, other: LlvmValue | Number, flip: bool = False) -> LlvmValue:
        a, b = self.with_equal_lanes(other)
        if flip:
            a, b = b, a
        name = f"f{op}{self.f.module.flags}" if self.elem in FLOATS else op
        return self.f.let(f"{name} {llvm_type(a.elem, a.lanes)} {a.text}, {b.text}", a.elem, a.lanes)

    __add__, __sub__, __mul__, __truediv__ = map(_arithmetic_operator, ("add", "sub", "mul", "div"))
    __and__, __xor__, __lshift__, __rshift__ = map(_bit_operator, ("and", "xor", "shl", "ashr"))

    def __or__(self, other: LlvmValue | Number) -> LlvmValue:
        return self.binary("or", other)

    def __rsub__(self, other: Number) -> LlvmValue:
        return self._arithmetic("sub", other, flip=True)

    def __rtruediv__(self, other: Number) -> LlvmValue:
        return self._arithmetic("div", other, flip=True)

    def __neg__(self) -> LlvmValue:
        if self.is_float:
            return self.f.let(f"fneg {self.kind} {self}", self.elem, self.lanes)
        return 0 - self

    def __invert__(self) -> LlvmValue:
        return self.binary("xor", 1 if self.elem == "i1" else -1)

    def compare(self, predicate: str, other: LlvmValue | Number) -> LlvmValue:
        a, b = self.with_equal_lanes(other)
        return self.f.let(f"{'fcmp' if a.is_float else 'icmp'} {predicate} {a.kind} {a}, {b}", "i1", a.lanes)

    __lt__, __le__, __gt__, __ge__ = map(_comparison, ("olt", "ole", "ogt", "oge"), ("slt", "sle", "sgt", "sge"))
    eq, ne = map(_comparison, ("oeq", "une"), ("eq", "ne"))

    def is_nan(self) -> LlvmValue:
        return self.compare("uno", self)

    def pick(self, yes: LlvmValue | Number, no: LlvmValue | Number) -> LlvmValue:
        """`yes` where this i1 holds, else `no` (at least one is a Value)."""
        like = yes if isinstance(yes, LlvmValue) else no
        assert isinstance(like, LlvmValue)
        a, b = (v if isinstance(v, LlvmValue) else self.f.const(v, like.elem) for v in (yes, no))
        lanes = max(self.lanes, a.lanes, b.lanes)
        c = self if self.lanes == 1 else self.splat(lanes)
        a, b = a.splat(lanes), b.splat(lanes)
        return self.f.let(f"select {c.typed}, {a.typed}, {b.typed}", a.elem, lanes)

    def to(self, op: str, elem: str) -> LlvmValue:
        """A conversion instruction (`sitofp`, `trunc`, `bitcast`, ...) to another element type, lane by lane."""
        return self.f.let(f"{op} {self.typed} to {llvm_type(elem, self.lanes)}", elem, self.lanes)

    def as_int(self) -> LlvmValue:
        return self.to("bitcast", f"i{llvm_type_bits(self.elem)}")

    def as_float(self) -> LlvmValue:
        return self.to("bitcast", {16: "half", 32: "float", 64: "double"}[llvm_type_bits(self.elem)])

    def fma(self, b: LlvmValue | Number, c: LlvmValue | Number) -> LlvmValue:
        """self * b + c, rounded once."""
        _, y = self.with_equal_lanes(b)
        _, z = self.with_equal_lanes(c)
        return self.f.intrinsic("fma", self.elem, self, y, z)

    def apply(self, name: str, *args: LlvmValue | Number) -> LlvmValue:
        """The intrinsic `llvm.<name>` of this value."""
        return self.f.intrinsic(name, self.elem, self, *(self.with_equal_lanes(a)[1] for a in args))

    def abs(self) -> LlvmValue:
        return self.apply("fabs")

    def freeze(self) -> LlvmValue:
        return self.f.let(f"freeze {self.typed}", self.elem, self.lanes)

    def shuffle(self, order: list[int], other: LlvmValue | None = None) -> LlvmValue:
        """The lanes of this (and of `other`, counted on) in the given order."""
        mask = ", ".join(f"i32 {i}" for i in order)
        second = other.typed if other is not None else f"{self.kind} poison"
        if len(order) == 1:
            return self.lane(order[0])
        return self.f.let(f"shufflevector {self.typed}, {second}, <{len(order)} x i32> <{mask}>", self.elem, len(order))

    def lane(self, i: int) -> LlvmValue:
        return self if self.lanes == 1 else self.f.let(f"extractelement {self.typed}, i64 {i}", self.elem)

    # addresses

    def at(self, offset: LlvmValue | int, elem: str, inside: bool = True) -> LlvmValue:
        """The address `offset` elements further; `inside`: it is within the same array."""
        inbounds = "inbounds " if inside else ""
        return self.f.let(f"getelementptr {inbounds}{elem}, ptr {self}, i64 {offset}", "ptr")

    def load(self, elem: str, lanes: int = 1, align: int | None = None, note: str = "") -> LlvmValue:
        return self.f.let(
            f"load {llvm_type(elem, lanes)}, ptr {self}, align {align or _llvm_alignment(elem)}{note}", elem, lanes
        )

    def store(self, value: LlvmValue, align: int | None = None, note: str = "") -> None:
        self.f.do(f"store {value.typed}, ptr {self}, align {align or _llvm_alignment(value.elem)}{note}")

    def prefetch(self, write: bool = False, locality: int = 3) -> None:
        """Into the cache of a level: locality 3 the first, 2 the second."""
        self.f.module.declare("@llvm.prefetch.p0", "void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        self.f.do(f"call void @llvm.prefetch.p0(ptr {self}, i32 {int(write)}, i32 {locality}, i32 1)")


def _llvm_alignment(elem: str) -> int:
    return 8 if elem == "ptr" else max(1, llvm_type_bits(elem) // 8)


def llvm_mask_below(f: LlvmFunction, count: LlvmValue, lanes: int) -> LlvmValue:
    """The i1 vector whose lane i says i < count (an i64)."""
    steps = f.vector(list(range(lanes)), "i32")
    return steps.compare("ult", count.to("trunc", "i32"))


def emit_llvm_masked_load(address: LlvmValue, elem: str, lanes: int, mask: LlvmValue | None) -> LlvmValue:
    """The lanes that `mask` allows (None: all); zero elsewhere, and nothing is read there."""
    if mask is None:
        return address.load(elem, lanes)
    f = address.f
    name, kind = f"@llvm.masked.load.{llvm_intrinsic_suffix(elem, lanes)}.p0", llvm_type(elem, lanes)
    f.module.declare(name, f"{kind} {name}(ptr, i32, {mask.kind}, {kind})")
    args = f"ptr {address}, i32 {_llvm_alignment(elem)}, {mask.typed}, {kind} zeroinitializer"
    return f.let(f"call {kind} {name}({args})", elem, lanes)


def emit_llvm_masked_store(address: LlvmValue, value: LlvmValue, mask: LlvmValue | None) -> None:
    if mask is None:
        address.store(value)
        return
    f = address.f
    name = f"@llvm.masked.store.{llvm_intrinsic_suffix(value.elem, value.lanes)}.p0"
    f.module.declare(name, f"void {name}({value.kind}, ptr, i32, {mask.kind})")
    f.do(f"call void {name}({value.typed}, ptr {address}, i32 {_llvm_alignment(value.elem)}, {mask.typed})")


# Loops, branches that are hardly ever taken, streaming stores.
METADATA = """\
!0 = distinct !{!0, !2, !3}
!1 = distinct !{!1, !2, !4}
!2 = !{!"llvm.loop.vectorize.enable", i1 false}
!3 = !{!"llvm.loop.unroll.disable"}
!4 = !{!"llvm.loop.unroll.count", i32 8}
!5 = !{!"branch_weights", i32 1, i32 1048576}
!6 = !{i32 1}"""


class LlvmModule:
    """Declarations and helper functions by name, each written once, in the order of first use."""

    def __init__(self, vector_library: str | None = None, flags: str = "") -> None:
        self.vector_library = vector_library
        self.flags = flags
        self.parts: dict[str, str] = {}

    def declare(self, name: str, text: str) -> str:
        self.parts.setdefault(name, f"declare {text}")
        return name

    def define(self, name: str, make: Callable[[], str]) -> str:
        if name not in self.parts:
            self.parts[name] = ""  # its place in the order; helpers that it needs come after
            self.parts[name] = make()
        return name

    def function(
        self,
        name: str,
        elem: str,
        kinds: tuple[str, ...],
        lanes: tuple[int, ...],
        write: Callable[..., LlvmValue],
        attributes: str = "alwaysinline",
    ) -> str:
        """Define `elem name(kinds...)`, each parameter so many lanes wide, the result like the first. `write` gets the
        parameters."""

        def define_function() -> str:
            f = LlvmFunction(self)
            params = [LlvmValue(f, f"%x{i}", *of) for i, of in enumerate(zip(kinds, lanes, strict=True))]
            result = write(*params)
            f.do(f"ret {result.typed}")
            signature = ", ".join(p.typed for p in params)
            return f.render(f"define internal {llvm_type(elem, lanes[0])} {name}({signature}) {attributes}")

        return self.define(name, define_function)

    def __str__(self) -> str:
        return "\n".join(self.parts.values())
