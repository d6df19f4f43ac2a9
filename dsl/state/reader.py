"""The fast way of calls whose arguments are nested or opened: a function that reads the leaves where one call had them.

It looks whether the arguments are of the same structure as those of that call, holder by holder, and gives the leaves
and the holders to the entry's own fast way.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from operator import itemgetter
from types import MethodType
from typing import Any

from ..core.object_model import is_whole_dict, slots_of_class
from ..core.python_text import (
    PythonText,
    compiled_functions,
    function_text,
    indented_lines,
    lines_in_try,
    tuple_text,
)
from ..core.pytree import MetAgain, Tree
from .opening import OpenedTree, opened_attributes_of_class

Fast = Callable[..., Any]


class _UnreadableStructure(Exception):
    """The structure has something that takes more than a look."""


class _NestedArgumentReaderWriter(PythonText):
    """Writes the lines that read one structure."""

    def __init__(self, tree: Tree) -> None:
        """tree: of all arguments. Of opened ones what can be changed is given too."""
        super().__init__()
        self.opened = tree if isinstance(tree, OpenedTree) else None
        self.leaves: list[str] = []
        self.holders: list[tuple[str, type]] = []
        self.met: list[str] = []  # leaves and holders
        self._names = 0

    def name(self) -> str:
        self._names += 1
        return f"x{self._names}"

    def read(self, tree: Tree, value: str) -> Iterator[str]:
        """Lines for what is in the variable `value`."""
        kind = tree.kind
        if kind is None:
            self.leaves.append(value)
            self.met.append(value)
        elif kind is MetAgain:
            yield _reader_line_not_taken(f"{value} is {self.met[_leaf_number_of_nested_argument(tree)]}")
        else:
            yield _reader_line_not_taken(f"type({value}) is {self.constant(kind)}")
            if self.opened and not issubclass(kind, (tuple, MethodType)):
                self.holders.append((value, kind))
                self.met.append(value)
            yield from self._lines_that_read_argument_container(tree, kind, value)

    def lines_that_add_defaults(self, count: int, function: Any) -> Iterator[str]:
        """Lines for fewer arguments than the structure has."""
        if not getattr(function, "__defaults__", None):
            yield "return NOT_TAKEN"
            return
        defaults = f"{self.constant(function)}.__defaults__"  # they are not kept
        yield _reader_line_not_taken(f"len(args) < {count} <= len(args) + len({defaults})")
        yield f"args += {defaults}[len(args) - {count} :]"

    def apart(self, arrays: Sequence[int]) -> Iterator[str]:
        """Lines that look whether no holder and no array is at two places that it was not at. arrays: which leaves are
        such."""
        kinds = dict.fromkeys(kind for _, kind in self.holders)
        groups = [[h for h, other in self.holders if other is kind] for kind in kinds]
        for same in (*groups, [self.leaves[i] for i in arrays]):
            if self.opened and len(same) > 1:
                yield _reader_line_not_taken(f"len({{*map(id, ({', '.join(same)}))}}) == {len(same)}")

    def _lines_that_read_argument_container(self, tree: Tree, kind: type, value: str) -> Iterator[str]:
        names = [self.name() for _ in tree.children]
        unpacked = tuple_text(names)
        if kind is list or issubclass(kind, tuple):
            yield _reader_line_not_taken(f"len({value}) == {len(names)}")
            if names:
                yield f"{unpacked} = {value}"
        elif kind is MethodType:
            yield _reader_line_not_taken(f"{value}.__func__ is {self.constant(tree.names[0])}")
            yield f"{names[0]} = {value}.__self__"
        elif issubclass(kind, dict):
            if issubclass(kind, OrderedDict):
                yield _reader_line_not_taken(f"{self.constant(is_whole_dict)}({value})")
            yield from self._lines_that_read_argument_dict(tree.names, unpacked, value)
        else:
            attributes = opened_attributes_of_class(kind, None if self.opened is None else self.opened.attributes)
            every = slots_of_class(kind)
            slots = [n for n in tree.names if n in every]
            if len(slots) != sum(attributes is None or n in attributes for n in every):
                raise _UnreadableStructure  # one that is empty must stay so
            for name, into in zip(slots, names, strict=False):
                yield f"{into} = {self.constant(slots_of_class(kind)[str(name)].__get__)}({value})"
            if kind.__dictoffset__:
                rest = tuple_text(names[len(slots) :])
                yield f"{value}d = {value}.__dict__"
                if attributes is None:
                    yield from self._lines_that_read_argument_dict(tree.names[len(slots) :], rest, f"{value}d")
                else:
                    yield from self._lines_that_read_attributes(tree.names[len(slots) :], attributes, rest, f"{value}d")
        for child, name in zip(tree.children, names, strict=True):
            yield from self.read(child, name)

    def _lines_that_read_attributes(
        self, names: Sequence[Hashable], attributes: frozenset[str], unpacked: str, value: str
    ) -> Iterator[str]:
        """The same of the attributes that are opened; others come and go."""
        seen = self.constant([None])
        yield f"if (k := [*{value}]) != {seen}[0]:"
        yield f"    if {self.constant(attributes)}.intersection(k) != {self.constant({*names})}: return NOT_TAKEN"
        yield f"    {seen}[0] = k"
        if names:
            got = f"{self.constant(itemgetter(*names))}({value})"
            yield f"{unpacked} = {got if len(names) > 1 else f'({got},)'}"

    def _lines_that_read_argument_dict(self, names: Sequence[Hashable], unpacked: str, value: str) -> Iterator[str]:
        """Lines that look whether a dict has these names, in this order, and read it."""
        if not all(type(name) is str for name in names):
            raise _UnreadableStructure
        if names:
            yield _reader_line_not_taken(f"[*{value}] == {self.constant([*names])}")
            yield f"{unpacked} = {value}.values()"
        else:
            yield _reader_line_not_taken(f"not {value}")


def compile_reader_of_nested_arguments(
    tree: Tree,
    inner: Fast,
    values: Mapping[int, Any],
    not_taken: Any,
    function: Any = None,
    arrays: Sequence[int] = (),
) -> Fast | None:
    """What takes the arguments of one structure and gives `inner(leaves and holders, caller)`.

    values: of the leaves whose values are part of the key. not_taken: what is given for other arguments. function:
    whose defaults are arguments where fewer are given. arrays: the leaves that are arrays. None where more than a look
    is needed."""
    reader = _NestedArgumentReaderWriter(tree)
    positional, named = tree.children
    if named.names:
        return None
    try:
        names = [reader.name() for _ in positional.children]
        lines = [f"if len(args) != {len(names)}:"]
        lines += indented_lines(reader.lines_that_add_defaults(len(names), function))
        lines += [f"{tuple_text(names)} = args"] if names else []
        for child, name in zip(positional.children, names, strict=True):
            lines += reader.read(child, name)
        lines += reader.apart(arrays)
        for leaf, value in values.items():
            if type(value) is not int and (type(value) is not float or not value or value != value):  # -0.0, NaN
                raise _UnreadableStructure
            name = reader.leaves[leaf]  # what is of another type may raise when compared
            test = f"type({name}) is {type(value).__name__} and {name} == {reader.constant(value)}"
            lines.append(_reader_line_not_taken(test))
    except _UnreadableStructure:
        return None
    given = [*reader.leaves, *(h for h, _ in reader.holders)]
    body = [*lines, f"leaves = {tuple_text(given)}"]
    body = [*lines_in_try(body, "return NOT_TAKEN", "(AttributeError, TypeError, ValueError)")]
    text = function_text("fast", "args, caller=0", [*body, "return inner(leaves, caller)"])
    return compiled_functions(text, {"NOT_TAKEN": not_taken, "inner": inner, **reader.constants})["fast"]


def _leaf_number_of_nested_argument(tree: Tree) -> int:
    number = tree.names[0]
    assert isinstance(number, int)
    return number


def _reader_line_not_taken(test: str) -> str:
    return f"if not ({test}): return NOT_TAKEN"
