"""Python functions over the words of kernel text in, kernel text out. What is known beforehand is done beforehand.

A kernel is a function within one that has its constants: their closure values. Loops over a range of known length are
unrolled, branches on what is known are taken, and the Python functions that it calls are inlined; built-in functions
are called. A list is a register for each of its elements, which the text names `k0`, `k1`, ... Numbers that a kernel
assigns to names are variables of the text; `while` and `if` on what only the text knows stay what they are.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import operator
import textwrap
from collections import ChainMap, Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from types import CodeType, FunctionType, MethodType
from typing import Any

import numpy as np

from .....runtime.core.frozen import dataclass, frozen
from ....core.types import HALVES, SHORT_NAMES, DType

_FOLDED: dict[type, Callable[..., Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod, ast.LShift: operator.lshift, ast.RShift: operator.rshift, ast.Pow: operator.pow,
    ast.USub: operator.neg, ast.Not: operator.not_, ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt,
    ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Is: operator.is_, ast.IsNot: operator.is_not,
}  # fmt: skip


TEXTS = 512  # that are kept


@frozen
class Word:
    """A word of kernel text, which `runtime/devices/cuda/compile/vocabulary.py` explains. Only kernels can call it."""

    name: str

    def __call__(self, *arguments: Any) -> Any:
        raise TypeError(f"{self.name} exists in kernels alone")


def __getattr__(name: str) -> Word:
    """Words that name no dtype are imported from here."""
    if name.startswith("__"):
        raise AttributeError(name)
    return Word(name)


def _same_value(x: Any) -> Any:
    return x


@frozen
class DtypeWords:
    """The words of kernel text that name a dtype. Places are numbers of elements."""

    dtype: DType

    @property
    def name(self) -> str:
        return SHORT_NAMES[self.dtype]

    def __call__(self, number: Any) -> Any:
        return Word(self.name)(number)

    def convert(self, words: DtypeWords, x: Any) -> Any:
        """The value x of these words' dtype in that of others."""
        return (_same_value if self.dtype == words.dtype else Word(f"{words.name}_from_{self.name}"))(x)

    def bits(self, words: DtypeWords, x: Any) -> Any:
        """The bits of x as a value of another dtype."""
        return (_same_value if self.dtype == words.dtype else Word(f"{words.name}_bits_{self.name}"))(x)

    def load(self, pointer: Any, place: Any) -> Any:
        return Word(f"load_{self.name}_1x1")(pointer, place, Word("i32")(0), Word("i32")(0))

    def load_if(self, pointer: Any, place: Any, inside: Any) -> Any:
        return Word(f"load_{self.name}_1x1_if")(pointer, place, Word("i32")(0), Word("i32")(0), inside)

    def store(self, pointer: Any, place: Any, x: Any) -> None:
        Word(f"store_{self.name}_1x1")(pointer, place, Word("i32")(0), Word("i32")(0), x)

    def store_if(self, pointer: Any, place: Any, x: Any, inside: Any) -> None:
        Word(f"store_{self.name}_1x1_if")(pointer, place, Word("i32")(0), Word("i32")(0), x, inside)

    def shared(self, count: int) -> Any:
        return Word(f"shared_{self.name}_{count}")()

    def load_shared(self, memory: Any, place: Any) -> Any:
        return Word(f"sload_{self.name}_1")(memory, place)

    def store_shared(self, memory: Any, place: Any, x: Any) -> None:
        Word(f"sstore_{self.name}_1")(memory, place, x)


def number_of_dtype(dtype: DType, value: Any) -> bool | int | float:
    """What words of a dtype are called with for a number: of 16-bit floats its bits; any NaN is the quiet one."""
    if dtype in HALVES:
        return int(np.asarray(value, dtype).view(np.uint16))
    return float(value) if dtype.kind == "f" else int(value)


class KernelLanguageError(TypeError):
    """A kernel says what has no text."""


_texts: dict[Hashable, str] = {}


class _Registers(list[Any]):
    """The elements of a list of a kernel, each a name of the text."""

    name = ""


@dataclass(slots=True)
class _Frame:
    """A function that is read: the values of its names, and what is put after names of its own in the text."""

    names: Mapping[str, Any]
    locals: dict[str, Any]
    suffix: str


def kernel_text(kernel: Callable[..., None], threads: int | tuple[int, int], rest: int = 0) -> str:
    """The text of a kernel, in which NAME stands for its name. threads: of its largest block, or those and the blocks
    that a multiprocessor should hold at once. rest: how many parameters its `*` stands for. It is read once of all
    kernels that are made of the same."""
    key = (_key_of_value(kernel), threads, rest)
    found = _texts.get(key)
    if found is None:
        if len(_texts) >= TEXTS:
            _texts.clear()
        found = _texts[key] = _read_kernel(kernel, threads, rest)
    return found


def _key_of_value(value: Any) -> Hashable:
    """What tells apart the values that kernels are made with."""
    if isinstance(value, FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or ()]
        return (value.__code__, *map(_key_of_value, (*cells, *(value.__defaults__ or ()))))
    if isinstance(value, tuple | list):
        return (type(value), *map(_key_of_value, value))
    if hasattr(value, "__dict__") and not isinstance(value, type):
        return (type(value), *((name, _key_of_value(v)) for name, v in vars(value).items()))
    show: Any = type(value).__repr__
    if show is object.__repr__:
        return object()  # the same as no other
    return type(value), repr(value)


def _read_kernel(kernel: Callable[..., None], threads: int | tuple[int, int], rest: int) -> str:
    reader, tree = _KernelReader(), _tree_of_function(kernel.__code__)
    parameters = [p.arg for p in tree.args.args]
    names: dict[str, Any] = {p: ast.Name(p) for p in parameters}
    if starred := tree.args.vararg:
        names[starred.arg] = tuple(ast.Name(f"{starred.arg}{k}") for k in range(rest))
        parameters += [name.id for name in names[starred.arg]]
    reader.frames.append(_Frame(_names_of_function(kernel), names, ""))
    reader.read_statements(tree.body)
    arguments = ast.arguments([], [ast.arg(p) for p in parameters], None, [], [], None, [])
    return f"THREADS = {threads}\n{ast.unparse(ast.FunctionDef('NAME', arguments, reader.lines, [], lineno=0))}\n"


@cache
def _tree_of_function(code: CodeType) -> ast.FunctionDef:
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(code))).body
    assert isinstance(tree, ast.FunctionDef)
    return tree


@cache
def _assigned_names(tree: ast.FunctionDef) -> frozenset[str]:
    return frozenset(n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))


@cache
def _names_in_one_expression(tree: ast.FunctionDef) -> Mapping[str, int] | None:
    """How often each name is read in a function that is one expression; of others None."""
    match tree.body:
        case [ast.Return(value=ast.expr() as value)] | [ast.Expr(), ast.Return(value=ast.expr() as value)]:
            return Counter(n.id for n in ast.walk(value) if isinstance(n, ast.Name))
        case [ast.Expr(value=value)]:
            return Counter(n.id for n in ast.walk(value) if isinstance(n, ast.Name))
        case _:
            return None


def _names_of_function(function: Any) -> Mapping[str, Any]:
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    return ChainMap({n: c.cell_contents for n, c in cells.items()}, function.__globals__, vars(builtins))


def _text_of_value(value: Any) -> ast.expr:
    """The expression that a value is in the text."""
    if isinstance(value, ast.expr):
        return value
    if isinstance(value, Word):
        return ast.Name(value.name)
    if isinstance(value, tuple | list):
        return ast.Tuple([_text_of_value(v) for v in value], ast.Load())
    if isinstance(value, bool | int | float):
        return ast.parse(repr(value), mode="eval").body
    raise KernelLanguageError(f"{value!r} has no kernel text")


def _is_variable(value: Any) -> bool:
    return isinstance(value, ast.expr | bool | int | float)


class _KernelReader:
    """Reads the statements of a kernel and of the functions that it calls; `lines` is what the text says."""

    def __init__(self) -> None:
        self.frames: list[_Frame] = []
        self.lines: list[ast.stmt] = []
        self.results = 0  # of functions of several statements
        self.within = ""  # what has no place for statements before it

    # statements

    def read_statements(self, body: Sequence[ast.stmt]) -> Any:
        """What they return, if the last of them returns."""
        for statement in body:
            match statement:
                case ast.Return(value=ast.expr() as value):
                    return self.last_value(value)
                case ast.If(test, then, otherwise):
                    condition = self.value(test)
                    if isinstance(condition, ast.expr):
                        self.write(ast.If(condition, self.block(then), self.block(otherwise)))
                    elif (found := self.read_statements(then if condition else otherwise)) is not None:
                        return found
                case _:
                    self.read_statement(statement)
        return None

    def read_statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Expr(ast.Constant()) | ast.Pass():
                pass
            case ast.Expr(value):
                found = self.value(value)
                if isinstance(found, ast.expr):
                    self.write(ast.Expr(found))
            case ast.Assign([ast.Name(name)], ast.ListComp(element, [ast.comprehension(target, values, [])])):
                registers = self.frames[-1].locals[name] = _Registers()
                registers.name = name + self.frames[-1].suffix
                for k, value in enumerate(self.value(values)):
                    self.bind(target, value)
                    registers.append(self.variable(f"{registers.name}{k}", self.last_value(element)))
            case ast.Assign([target], value):
                self.assign(target, self.last_value(value))
            case ast.AugAssign(target, op, value):
                place = self.text(target)
                assert isinstance(place, ast.Name)
                self.write(ast.AugAssign(place, op, self.text(value)))
            case ast.While(test, body):
                with self.without_statements("the test of a while"):
                    condition = self.text(test)
                self.write(ast.While(condition, self.block(body), []))
            case ast.For(target, values, body):
                for value in self.value(values):
                    self.bind(target, value)
                    self.read_statements(body)
            case _:
                raise KernelLanguageError(f"a kernel cannot say: {ast.unparse(node)}")

    def block(self, body: Sequence[ast.stmt]) -> list[ast.stmt]:
        before, self.lines = self.lines, []
        if self.read_statements(body) is not None:
            raise KernelLanguageError("a function that kernels call returns at its end alone")
        self.lines, lines = before, self.lines
        return lines

    def write(self, statement: ast.stmt) -> None:
        if self.within:
            raise KernelLanguageError(f"{ast.unparse(statement)}: there is no place for this in {self.within}")
        self.lines.append(statement)

    @contextmanager
    def without_statements(self, where: str) -> Iterator[None]:
        before, self.within = self.within, where
        yield
        self.within = before

    def bind(self, target: ast.expr, value: Any) -> None:
        """Names that the text does not have."""
        if isinstance(target, ast.Tuple):
            for part, item in zip(target.elts, value, strict=True):
                self.bind(part, item)
        else:
            assert isinstance(target, ast.Name)
            self.frames[-1].locals[target.id] = value

    def assign(self, target: ast.expr, value: Any) -> None:
        match target:
            case ast.Name(name):
                self.bind(target, self.variable(name + self.frames[-1].suffix, value))
            case ast.Tuple(parts):
                for part, item in zip(parts, value, strict=True):
                    self.assign(part, item)
            case ast.Subscript(base, place):
                registers, k = self.value(base), self.value(place)
                registers[k] = self.variable(f"{registers.name}{k}", value)

    def variable(self, name: str, value: Any) -> Any:
        """What a name of a kernel stands for from now on."""
        if isinstance(value, list) and not isinstance(value, _Registers):
            registers = _Registers(
                self.variable(f"{name}{k}", item) if _is_variable(item) else item for k, item in enumerate(value)
            )
            registers.name = name
            return registers
        if not _is_variable(value):
            return value
        self.write(ast.Assign([ast.Name(name)], _text_of_value(value), lineno=0))
        return ast.Name(name)

    # expressions

    def text(self, node: ast.expr) -> ast.expr:
        return _text_of_value(self.value(node))

    def value(self, node: ast.expr) -> Any:
        """An expression of the text, or what is known beforehand."""
        match node:
            case ast.Constant(value):
                return value
            case ast.Name(name):
                frame = self.frames[-1]
                return frame.locals[name] if name in frame.locals else frame.names[name]
            case ast.Attribute(value, attribute):
                return getattr(self.value(value), attribute)
            case ast.Call():
                return self.call(node)
            case ast.IfExp(test, then, otherwise):
                return self.choice(test, then, otherwise)
            case ast.BoolOp(op, parts):
                return self.connection(op, parts)
            case ast.Tuple(parts) | ast.List(parts):
                items = [self.value(part) for part in parts]
                return items if isinstance(node, ast.List) else tuple(items)
            case ast.JoinedStr(parts):
                return "".join(
                    str(self.value(part.value if isinstance(part, ast.FormattedValue) else part)) for part in parts
                )
            case _:
                return self.operation(node)

    def last_value(self, node: ast.expr) -> Any:
        """As `value`, of what the text uses at once: the names that a function has left may stand in it."""
        return self.call(node, True) if isinstance(node, ast.Call) else self.value(node)

    def operation(self, node: ast.expr) -> Any:
        match node:
            case ast.BinOp(a, op, b) | ast.Compare(a, [op], [b]):
                x, y = self.value(a), self.value(b)
                if not isinstance(x, ast.expr) and not isinstance(y, ast.expr):
                    return _FOLDED[type(op)](x, y)
                x, y = _text_of_value(x), _text_of_value(y)
                return ast.BinOp(x, op, y) if isinstance(op, ast.operator) else ast.Compare(x, [op], [y])
            case ast.UnaryOp(op, a):
                x = self.value(a)
                return ast.UnaryOp(op, x) if isinstance(x, ast.expr) else _FOLDED[type(op)](x)
            case ast.Subscript(base, place):
                x, k = self.value(base), self.value(place)
                return ast.Subscript(x, _text_of_value(k)) if isinstance(x, ast.expr) else x[k]
            case _:
                raise KernelLanguageError(f"a kernel cannot say: {ast.unparse(node)}")

    def choice(self, test: ast.expr, then: ast.expr, otherwise: ast.expr) -> Any:
        condition = self.value(test)
        if not isinstance(condition, ast.expr):
            return self.value(then if condition else otherwise)
        with self.without_statements("an arm of a conditional expression"):
            return ast.IfExp(condition, self.text(then), self.text(otherwise))

    def connection(self, op: ast.boolop, parts: Sequence[ast.expr]) -> Any:
        """`and`, `or`."""
        ends, left = isinstance(op, ast.Or), list[Any]()
        for part in parts:
            with self.without_statements("`and` and `or`"):
                value = self.value(part)
            if isinstance(value, ast.expr):
                left.append(value)
            elif bool(value) is ends:
                return value
        return ast.BoolOp(op, left) if len(left) > 1 else left[0] if left else not ends

    def call(self, node: ast.Call, at_once: bool = False) -> Any:
        function, given = self.value(node.func), list[Any]()
        for argument in node.args:
            if isinstance(argument, ast.Starred):
                given += self.value(argument.value)
            else:
                given.append(self.value(argument))
        named = {str(k.arg): self.value(k.value) for k in node.keywords}
        if isinstance(function, DtypeWords):
            function = Word(function.name)
        if isinstance(function, Word):
            return ast.Call(ast.Name(function.name), [_text_of_value(a) for a in given], [])
        if isinstance(function, FunctionType | MethodType):
            return self.inlined(function, given, named, at_once)
        return function(*given, **named)

    def inlined(
        self, function: FunctionType | MethodType, given: Sequence[Any], named: Mapping[str, Any], at_once: bool
    ) -> Any:
        """What a call of a Python function gives, whose statements are read here."""
        tree = _tree_of_function(function.__code__)
        bound = inspect.signature(function).bind(*given, **named)
        bound.apply_defaults()
        if isinstance(function, MethodType):
            bound.arguments = {tree.args.args[0].arg: function.__self__} | bound.arguments
        once, assigned = _names_in_one_expression(tree), _assigned_names(tree)
        taken = {name for frame in self.frames for name in frame.locals}
        suffix = "_" * len(self.frames) if taken & (assigned | bound.arguments.keys()) else ""
        frame = _Frame(_names_of_function(function), {}, suffix)
        for name, value in bound.arguments.items():
            simple = not isinstance(value, ast.expr) or isinstance(value, ast.Name) or (once and once[name] < 2)
            frame.locals[name] = value if simple and name not in assigned else self.variable(name + suffix, value)
        self.frames.append(frame)
        found = self.read_statements(tree.body)
        self.frames.pop()
        if once or at_once or not isinstance(found, ast.expr):
            return found
        self.results += 1
        return self.variable(f"result{self.results}", found)
