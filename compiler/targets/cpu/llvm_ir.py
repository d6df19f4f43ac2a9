"""LLVM IR as text: a function being written, and values with operators.

A `Value` is the name of a scalar (`lanes == 1`) or of a vector. Operators on values append one instruction to the
function that is being written; a scalar meets a vector by being splatted. Nothing here knows a kernel.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from .llvm_module import Module

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


def bits(elem: str) -> int:
    """The width of an element type in bits."""
    return FLOATS.get(elem) or int(elem[1:])


def spell(elem: str, lanes: int) -> str:
    """`float`, or `<16 x float>` for several lanes."""
    return elem if lanes == 1 else f"<{lanes} x {elem}>"


def mangle(elem: str, lanes: int) -> str:
    """The suffix of an overloaded intrinsic: `f32`, `v16f32`."""
    short = f"f{FLOATS[elem]}" if elem in FLOATS else elem
    return short if lanes == 1 else f"v{lanes}{short}"


def literal(number: Number, elem: str, lanes: int = 1) -> str:
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


class Function:
    """The instructions of one function, in order; stack slots are kept apart and go first."""

    def __init__(self, module: Module) -> None:
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

    def let(self, text: str, elem: str, lanes: int = 1) -> Value:
        name = "%" + self.fresh()
        self.lines.append(f"  {name} = {text}")
        return Value(self, name, elem, lanes)

    def const(self, number: Number, elem: str, lanes: int = 1) -> Value:
        return Value(self, literal(number, elem, lanes), elem, lanes)

    def vector(self, numbers: list[int], elem: str) -> Value:
        return Value(self, "<" + ", ".join(f"{elem} {n}" for n in numbers) + ">", elem, len(numbers))

    def slot(self, kind: str, count: int = 1) -> Value:
        """The address of stack memory for `count` values of type `kind`; promoted to a register where possible."""
        name = "%" + self.fresh("m")
        self.slots.append(f"  {name} = alloca {kind}, i64 {count}, align 64")
        return Value(self, name, "ptr")

    def block(self, label: str) -> None:
        self.lines.append(f"{label}:")
        self.label = label

    def jump(self, label: str) -> None:
        self.do(f"br label %{label}")

    @contextmanager
    def loop(self, start: Value, stop: Value, step: Value | int = 1, note: int = PLAIN) -> Iterator[Value]:
        """Run the body for start, start + step, ... below stop (all i64). note: what LLVM may do with it."""
        number = self.fresh("")
        head, body, latch, done = (f"{part}{number}" for part in ("head", "loop", "latch", "done"))
        i = Value(self, f"%i{number}", "i64")
        before = self.label
        self.jump(head)
        self.block(head)
        self.do(f"{i} = phi i64 [ {start}, %{before} ], [ %next{number}, %{latch} ]")
        self.do(f"br i1 {i < stop}, label %{body}, label %{done}")
        self.block(body)
        yield i
        self.jump(latch)
        self.block(latch)
        self.do(f"%next{number} = add nuw nsw i64 {i}, {step}")
        self.do(f"br label %{head}, !llvm.loop !{note}")
        self.block(done)

    @contextmanager
    def when(self, condition: Value, weights: str = "") -> Iterator[None]:
        number = self.fresh("")
        self.do(f"br i1 {condition}, label %then{number}, label %end{number}{weights}")
        self.block(f"then{number}")
        yield
        self.jump(f"end{number}")
        self.block(f"end{number}")

    def fork(self, condition: Value, yes: Callable[[], None], no: Callable[[], None]) -> None:
        number = self.fresh("")
        self.do(f"br i1 {condition}, label %then{number}, label %else{number}")
        for label, write in ((f"then{number}", yes), (f"else{number}", no)):
            self.block(label)
            write()
            self.jump(f"end{number}")
        self.block(f"end{number}")

    def call(self, name: str, elem: str, *args: Value, lanes: int | None = None) -> Value:
        wide = max((a.lanes for a in args), default=1) if lanes is None else lanes
        return self.let(f"call {spell(elem, wide)} {name}({', '.join(a.typed for a in args)})", elem, wide)

    def intrinsic(self, name: str, elem: str, *args: Value, flag: bool = False) -> Value:
        """Call `llvm.<name>`, overloaded on the result's type; `flag`: it has one more parameter, an i1, false."""
        lanes = max(a.lanes for a in args)
        wide = [a.splat(lanes) for a in args]
        full = f"@llvm.{name}.{mangle(elem, lanes)}"
        kinds, texts = [a.kind for a in wide] + ["i1"] * flag, [a.typed for a in wide] + ["i1 false"] * flag
        self.module.declare(full, f"{spell(elem, lanes)} {full}({', '.join(kinds)})")
        return self.let(f"call {spell(elem, lanes)} {full}({', '.join(texts)})", elem, lanes)

    def render(self, header: str) -> str:
        return "\n".join([f"{header} {ATTRIBUTES} {{", "entry:", *self.slots, *self.lines, "}"])


class Value:
    """A named value of `elem` type in `lanes` lanes; its operators write instructions."""

    __slots__ = ("elem", "f", "lanes", "text")

    def __init__(self, f: Function, text: str, elem: str, lanes: int = 1) -> None:
        self.f, self.text, self.elem, self.lanes = f, text, elem, lanes

    def __str__(self) -> str:
        return self.text

    @property
    def kind(self) -> str:
        return spell(self.elem, self.lanes)

    @property
    def typed(self) -> str:
        return f"{self.kind} {self.text}"

    @property
    def is_float(self) -> bool:
        return self.elem in FLOATS

    def splat(self, lanes: int) -> Value:
        if self.lanes == lanes:
            return self
        assert self.lanes == 1, f"{self.kind} does not splat to {lanes} lanes"
        if not self.text.startswith("%"):
            return Value(self.f, f"splat ({self.elem} {self.text})", self.elem, lanes)
        one = self.f.let(f"insertelement {spell(self.elem, lanes)} poison, {self.typed}, i64 0", self.elem, lanes)
        zeros = f"<{lanes} x i32> zeroinitializer"
        return self.f.let(f"shufflevector {one.typed}, {one.kind} poison, {zeros}", self.elem, lanes)

    def with_(self, other: Value | Number) -> tuple[Value, Value]:
        b = other if isinstance(other, Value) else self.f.const(other, self.elem, self.lanes)
        lanes = max(self.lanes, b.lanes)
        return self.splat(lanes), b.splat(lanes)

    def binary(self, op: str, other: Value | Number) -> Value:
        a, b = self.with_(other)
        return self.f.let(f"{op} {a.kind} {a}, {b}", a.elem, a.lanes)

    def _arithmetic(self, op: str, other: Value | Number, flip: bool = False) -> Value:
        a, b = self.with_(other)
        if flip:
            a, b = b, a
        return a.binary(f"f{op}{self.f.module.flags}" if self.is_float else op, b)

    def __add__(self, other: Value | Number) -> Value:
        return self._arithmetic("add", other)

    def __sub__(self, other: Value | Number) -> Value:
        return self._arithmetic("sub", other)

    def __rsub__(self, other: Number) -> Value:
        return self._arithmetic("sub", other, flip=True)

    def __mul__(self, other: Value | Number) -> Value:
        return self._arithmetic("mul", other)

    def __truediv__(self, other: Value | Number) -> Value:
        return self._arithmetic("div", other)

    def __rtruediv__(self, other: Number) -> Value:
        return self._arithmetic("div", other, flip=True)

    def __neg__(self) -> Value:
        if self.is_float:
            return self.f.let(f"fneg {self.kind} {self}", self.elem, self.lanes)
        return 0 - self

    def __and__(self, other: Value | Number) -> Value:
        return self.binary("and", other)

    def __or__(self, other: Value | Number) -> Value:
        return self.binary("or", other)

    def __xor__(self, other: Value | Number) -> Value:
        return self.binary("xor", other)

    def __invert__(self) -> Value:
        return self.binary("xor", 1 if self.elem == "i1" else -1)

    def __lshift__(self, other: Value | Number) -> Value:
        return self.binary("shl", other)

    def __rshift__(self, other: Value | Number) -> Value:
        return self.binary("ashr", other)

    def compare(self, predicate: str, other: Value | Number) -> Value:
        a, b = self.with_(other)
        return self.f.let(f"{'fcmp' if a.is_float else 'icmp'} {predicate} {a.kind} {a}, {b}", "i1", a.lanes)

    def __lt__(self, other: Value | Number) -> Value:
        return self.compare("olt" if self.is_float else "slt", other)

    def __le__(self, other: Value | Number) -> Value:
        return self.compare("ole" if self.is_float else "sle", other)

    def __gt__(self, other: Value | Number) -> Value:
        return self.compare("ogt" if self.is_float else "sgt", other)

    def __ge__(self, other: Value | Number) -> Value:
        return self.compare("oge" if self.is_float else "sge", other)

    def eq(self, other: Value | Number) -> Value:
        return self.compare("oeq" if self.is_float else "eq", other)

    def ne(self, other: Value | Number) -> Value:
        return self.compare("une" if self.is_float else "ne", other)

    def is_nan(self) -> Value:
        return self.compare("uno", self)

    def pick(self, yes: Value | Number, no: Value | Number) -> Value:
        """`yes` where this i1 holds, else `no` (at least one is a Value)."""
        like = yes if isinstance(yes, Value) else no
        assert isinstance(like, Value)
        a, b = (v if isinstance(v, Value) else self.f.const(v, like.elem) for v in (yes, no))
        lanes = max(self.lanes, a.lanes, b.lanes)
        c = self if self.lanes == 1 else self.splat(lanes)
        a, b = a.splat(lanes), b.splat(lanes)
        return self.f.let(f"select {c.typed}, {a.typed}, {b.typed}", a.elem, lanes)

    def to(self, op: str, elem: str) -> Value:
        """A conversion instruction (`sitofp`, `trunc`, `bitcast`, ...) to another element type, lane by lane."""
        return self.f.let(f"{op} {self.typed} to {spell(elem, self.lanes)}", elem, self.lanes)

    def as_int(self) -> Value:
        return self.to("bitcast", f"i{bits(self.elem)}")

    def as_float(self) -> Value:
        return self.to("bitcast", {16: "half", 32: "float", 64: "double"}[bits(self.elem)])

    def fma(self, b: Value | Number, c: Value | Number) -> Value:
        """self * b + c, rounded once."""
        _, y = self.with_(b)
        _, z = self.with_(c)
        return self.f.intrinsic("fma", self.elem, self, y, z)

    def apply(self, name: str, *args: Value | Number) -> Value:
        """The intrinsic `llvm.<name>` of this value."""
        return self.f.intrinsic(name, self.elem, self, *(self.with_(a)[1] for a in args))

    def abs(self) -> Value:
        return self.apply("fabs")

    def freeze(self) -> Value:
        return self.f.let(f"freeze {self.typed}", self.elem, self.lanes)

    def shuffle(self, order: list[int], other: Value | None = None) -> Value:
        """The lanes of this (and of `other`, counted on) in the given order."""
        mask = ", ".join(f"i32 {i}" for i in order)
        second = other.typed if other is not None else f"{self.kind} poison"
        if len(order) == 1:
            return self.lane(order[0])
        return self.f.let(f"shufflevector {self.typed}, {second}, <{len(order)} x i32> <{mask}>", self.elem, len(order))

    def lane(self, i: int) -> Value:
        return self if self.lanes == 1 else self.f.let(f"extractelement {self.typed}, i64 {i}", self.elem)

    # addresses

    def at(self, offset: Value | int, elem: str, inside: bool = True) -> Value:
        """The address `offset` elements further; `inside`: it is within the same array."""
        inbounds = "inbounds " if inside else ""
        return self.f.let(f"getelementptr {inbounds}{elem}, ptr {self}, i64 {offset}", "ptr")

    def load(self, elem: str, lanes: int = 1, align: int | None = None, note: str = "") -> Value:
        return self.f.let(f"load {spell(elem, lanes)}, ptr {self}, align {align or _align(elem)}{note}", elem, lanes)

    def store(self, value: Value, align: int | None = None, note: str = "") -> None:
        self.f.do(f"store {value.typed}, ptr {self}, align {align or _align(value.elem)}{note}")


def _align(elem: str) -> int:
    return 8 if elem == "ptr" else max(1, bits(elem) // 8)


def mask_below(f: Function, count: Value, lanes: int) -> Value:
    """The i1 vector whose lane i says i < count (an i64)."""
    steps = f.vector(list(range(lanes)), "i32")
    return steps.compare("ult", count.to("trunc", "i32"))


def masked_load(address: Value, elem: str, lanes: int, mask: Value) -> Value:
    """The lanes that `mask` allows; zero elsewhere, and nothing is read there."""
    f = address.f
    name, kind = f"@llvm.masked.load.{mangle(elem, lanes)}.p0", spell(elem, lanes)
    f.module.declare(name, f"{kind} {name}(ptr, i32, {mask.kind}, {kind})")
    args = f"ptr {address}, i32 {_align(elem)}, {mask.typed}, {kind} zeroinitializer"
    return f.let(f"call {kind} {name}({args})", elem, lanes)


def masked_store(address: Value, value: Value, mask: Value) -> None:
    f = address.f
    name = f"@llvm.masked.store.{mangle(value.elem, value.lanes)}.p0"
    f.module.declare(name, f"void {name}({value.kind}, ptr, i32, {mask.kind})")
    f.do(f"call void {name}({value.typed}, ptr {address}, i32 {_align(value.elem)}, {mask.typed})")
