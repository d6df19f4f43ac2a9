"""A function of numbers as Python text in; the same as a native function out, which Python calls as its own.

The text is straight-line arithmetic. Operators of floats are the machine's; all others are the functions that Python
itself has for them, so that they mean the same. A statement that raises, and a float divided by zero, undo the call:
the caller then takes the ordinary way.
"""

from __future__ import annotations

import ast
import ctypes
import operator
import struct
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from ..codegen.word_language import (
    HEAD,
    LENGTH_AT,
    TUPLE_AT,
    TYPE_AT,
    machine_code_can_read_bytes_objects,
    make_builtin_from_machine_code,
    read_memory_word,
)
from ..core.frozen import frozen
from .direct_call import Words
from .engine import native_engine_functions
from .words import records as e

_FLOATS = {ast.Add: e.ADD, ast.Sub: e.SUBTRACT, ast.Mult: e.MULTIPLY, ast.Div: e.DIVIDE}
_OPERATORS: dict[type, str] = {
    ast.Add: "Add", ast.Sub: "Subtract", ast.Mult: "Multiply", ast.Div: "TrueDivide", ast.FloorDiv: "FloorDivide",
    ast.Mod: "Remainder", ast.Pow: "Power", ast.LShift: "Lshift", ast.RShift: "Rshift", ast.BitAnd: "And",
    ast.BitOr: "Or", ast.BitXor: "Xor", ast.USub: "Negative", ast.UAdd: "Positive", ast.Invert: "Invert",
}  # fmt: skip
_FUNCTIONS = {id(operator.abs): "PyNumber_Absolute", id(divmod): "PyNumber_Divmod"}
_COMPARISONS: dict[type, int] = {ast.Lt: 0, ast.LtE: 1, ast.Eq: 2, ast.NotEq: 3, ast.Gt: 4, ast.GtE: 5}  # of object.h
_CONTAINERS: dict[type, tuple[str, int, int]] = {  # what makes one, and where its items are: see `words.records`
    ast.Tuple: ("PyTuple_New", 0, TUPLE_AT), ast.List: ("PyList_New", HEAD + 8, 0)
}  # fmt: skip
_EXACT_INT = 1 << 53
LONGEST = 1000  # leaves and statements: a frame lies on the caller's stack


class _NotNative(Exception):
    """The text has something that is not done natively."""


def make_native_number_function(
    statements: Sequence[str],
    result: str,
    leaves: Mapping[str, tuple[str, Any]],
    constants: Mapping[str, Any],
    watched: Words,
    items: Sequence[tuple[dict[str, Any], str, Any]],
    declined: Any,
    keep: Any = None,
) -> Callable[..., Any] | None:
    """f(leaves) gives what `result` is after the `statements`, or `declined`, and nothing is done. None: not natively.

    leaves: by its name, of each ("type", its type), or ("itself", the only value that it may have). constants: what
    other names stand for. watched: words of memory, and what has to be there. items: dicts, keys, and what they have to
    give: `declined` for nothing. keep: what has to live as long."""
    native = native_engine_functions()
    if native is None or not _numbers_lie_as_expected() or len(leaves) + len(statements) > LONGEST:
        return None
    writer = _NumberFunctionWriter(leaves, constants)
    try:
        for statement in statements:
            writer.write_statement(ast.parse(statement).body[0])
        container = writer.write_result(ast.parse(result, mode="eval").body)
    except _NotNative:
        return None
    words = [id(declined), id(tuple), id(Exception), len(leaves), len(watched), len(items), len(writer.constants)]
    words += [len(writer.rows), writer.frame_bytes, writer.gives_references, *container]
    words += [word for pair in watched for word in pair]
    for holder, key, value in items:
        words += [id(holder), id(key), 0 if value is declined else id(value)]
    words += writer.words()
    return make_builtin_from_machine_code(native.compute_numbers, words, (writer.held, items, leaves, declined, keep))


@frozen
class _NumberPlace:
    """Where a value is in the frame. kind: its type, or None. bits: whether it is a float's bits, no object."""

    section: int
    number: int
    kind: type | None
    bits: bool = False


_LEAVES, _BITS, _CONSTANTS, _GIVEN = range(4)  # the sections of a frame


class _NumberFunctionWriter:
    """Writes the statements of one function, as rows of words."""

    def __init__(self, leaves: Mapping[str, tuple[str, Any]], values: Mapping[str, Any]) -> None:
        self.leaves, self.values = leaves, values
        self.held: list[Any] = []
        self.constants: list[int] = []
        self.rows: list[tuple[int, _NumberPlace, _NumberPlace, int, int]] = []
        self._results: list[_NumberPlace] = []
        kinds = [leaf if how == "type" else None for how, leaf in leaves.values()]
        self._names = {n: _NumberPlace(_LEAVES, i, kind) for i, (n, kind) in enumerate(zip(leaves, kinds, strict=True))}
        self._floats = {p: _NumberPlace(_BITS, p.number, float, True) for p in self._names.values() if p.kind is float}
        self._objects = {bits: place for place, bits in self._floats.items()}

    def write_statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                self._names[name] = self._write_expression(value)
            case _:
                raise _NotNative

    def write_result(self, node: ast.expr) -> list[int]:
        """What makes the container of the results, and where it has them."""
        if not isinstance(node, ast.Tuple | ast.List):
            self._results = [self._write_expression(node)]
            return [0, 0, 0, 1]
        self._results = [self._write_expression(item) for item in node.elts]
        name, *places = _CONTAINERS[type(node)]
        return [_address_of_python_function(name), *places, len(self._results)]

    def _emit(
        self, operation: int, operands: Sequence[_NumberPlace], kind: type | None, function: str = "", third: int = 0
    ) -> _NumberPlace:
        """A statement of one or two operands. third: the function's third argument."""
        self.rows.append((operation, operands[0], operands[-1], _address_of_python_function(function), third))
        return _NumberPlace(_GIVEN, len(self.rows) - 1, kind, operation < e.MAKE_FLOAT)

    def _call(self, function: str, operands: Sequence[_NumberPlace], kind: type | None, third: int = 0) -> _NumberPlace:
        return self._emit(e.CALL, [self._as_object(place) for place in operands], kind, function, third)

    @property
    def gives_references(self) -> bool:
        return any(row[0] >= e.MAKE_FLOAT for row in self.rows)

    @property
    def frame_bytes(self) -> int:
        return 8 * (2 * len(self.leaves) + len(self.constants) + len(self.rows))

    def words(self) -> list[int]:
        """The leaves, the constants, the rows and the results."""
        first = [0, len(self.leaves), 2 * len(self.leaves), 2 * len(self.leaves) + len(self.constants)]
        words: list[int] = []
        for how, leaf in self.leaves.values():
            looks = e.LEAF_ITSELF if how == "itself" else e.LEAF_FLOAT if leaf is float else e.LEAF_OF_TYPE
            words += [looks, id(leaf)]
        words += self.constants
        for i, (operation, left, right, function, extra) in enumerate(self.rows):
            places = (first[_GIVEN] + i, *(first[place.section] + place.number for place in (left, right)))
            words += [operation, *(8 * place for place in places), function, extra]
        for place in self._results:
            words += [place.bits, 8 * (first[place.section] + place.number)]
        return words

    def _word(self, word: int, kind: type | None = None) -> _NumberPlace:
        self.constants.append(word)
        return _NumberPlace(_CONSTANTS, len(self.constants) - 1, kind)

    def _write_expression(self, node: ast.expr) -> _NumberPlace:
        match node:
            case ast.Name(id=name) if name in self._names:
                return self._names[name]
            case ast.Name(id=name):
                return self._constant(name, self.values[name])
            case ast.Constant(value=value):
                return self._constant(repr(value), value)
            case ast.BinOp(left=left, op=op, right=right):
                return self._write_operator(type(op), [self._write_expression(left), self._write_expression(right)])
            case ast.UnaryOp(op=op, operand=operand) if type(op) in _OPERATORS:
                return self._write_operator(type(op), [self._write_expression(operand)])
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARISONS:
                operands = [self._write_expression(left), self._write_expression(right)]
                return self._call("PyObject_RichCompare", operands, bool, _COMPARISONS[type(op)])
            case ast.Call(func=ast.Name(id=name), args=arguments) if id(self.values.get(name)) in _FUNCTIONS:
                function = _FUNCTIONS[id(self.values[name])]
                return self._call(function, [self._write_expression(x) for x in arguments], None)
            case ast.Subscript(value=value, slice=index):
                operands = [self._write_expression(value), self._write_expression(index)]
                return self._call("PyObject_GetItem", operands, None)
        raise _NotNative

    def _constant(self, name: str, value: Any) -> _NumberPlace:
        self.held.append(value)
        place = self._names[name] = self._word(id(value), type(value))
        if type(value) is float or (type(value) is int and abs(value) <= _EXACT_INT):
            self._floats[place] = self._word(int.from_bytes(struct.pack("<d", value), "little"))
        return place

    def _write_operator(self, op: type, operands: list[_NumberPlace]) -> _NumberPlace:
        kinds = {place.kind for place in operands}
        if op in _FLOATS and float in kinds and all(p.kind is float or p in self._floats for p in operands):
            return self._emit(_FLOATS[op], [self._as_float(place) for place in operands], float)
        kind: type | None = None
        if kinds <= {int, float} and op is not ast.Pow:
            kind = float if float in kinds or op is ast.Div else int
        third = id(None) if op is ast.Pow else 0  # the modulus
        return self._call(f"PyNumber_{_OPERATORS[op]}", operands, kind, third)

    def _as_float(self, place: _NumberPlace) -> _NumberPlace:
        if not place.bits and place not in self._floats:
            self._floats[place] = self._emit(e.TAKE_FLOAT, [place], float)
        return place if place.bits else self._floats[place]

    def _as_object(self, place: _NumberPlace) -> _NumberPlace:
        if place.bits and place not in self._objects:
            self._objects[place] = self._emit(e.MAKE_FLOAT, [place], float)
        return self._objects[place] if place.bits else place


@cache
def _address_of_python_function(name: str) -> int:
    return ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0 if name else 0


@cache
def _numbers_lie_as_expected() -> bool:
    """Whether tuples have their items, and floats their bits, where machine code looks for them."""
    if not machine_code_can_read_bytes_objects() or tuple.__itemsize__ != 8:
        return False
    number = 1.25
    items, others = (number, None), [None, number]
    found = [read_memory_word(id(items) + at) for at in (TYPE_AT, LENGTH_AT, TUPLE_AT, TUPLE_AT + 8)]
    bits = int.from_bytes(struct.pack("<d", number), "little")
    found += [read_memory_word(read_memory_word(id(others) + HEAD + 8) + 8), read_memory_word(id(number) + HEAD)]
    return found == [id(tuple), 2, id(number), id(None), id(number), bits]
