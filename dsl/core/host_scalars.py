"""Arithmetic on the caller's Python numbers, written down while tracing and done by Python itself at each call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any, cast

from .python_text import compiled_functions, function_text, tuple_text

Host = Callable[[Sequence[Any]], tuple[Any, ...]]


# operators that Python's grammar has a sign for; those of one operand have a name of their own
SIGNS = {
    "__add__": "+", "__sub__": "-", "__mul__": "*", "__truediv__": "/", "__floordiv__": "//", "__mod__": "%",
    "__pow__": "**", "__lshift__": "<<", "__rshift__": ">>", "__and__": "&", "__or__": "|", "__xor__": "^",
    "__lt__": "<", "__le__": "<=", "__eq__": "==", "__ne__": "!=", "__gt__": ">", "__ge__": ">=",
    "__neg__": "-", "__pos__": "+", "__invert__": "~",
}  # fmt: skip


class Respecialise(Exception):
    """A number of this call does not fit the trace: its type or size differs from what the trace assumed."""


class HostScalarCode:
    """Straight-line Python on the numbers of a call. Statements keep their order, equal ones are made once."""

    def __init__(self) -> None:
        self.statements: list[str] = []
        self._names: dict[str, str] = {}
        self._scope: dict[str, Any] = {"Respecialise": Respecialise}

    def argument(self, leaf: int) -> str:
        """The name of the call's leaf number `leaf`."""
        return f"leaves[{leaf}]"

    def constant(self, value: Any) -> str:
        """A name for a Python number that is known now."""
        key = f"{type(value).__name__} {value!r}"
        name = self._names.get(key)
        if name is None:
            name = self._names[key] = f"k{len(self._scope)}"
            self._scope[name] = value
        return name

    def operation(self, name: str, function: Callable[..., Any], operands: Sequence[str]) -> str:
        """A name for what Python's operator `name`, which `function` does, gives for named operands."""
        sign = SIGNS.get(name)
        if sign is None:
            return self.statement(f"{self._function_name(function)}({', '.join(operands)})")
        left = "".join(f"{operand} " for operand in operands[:-1])
        return self.statement(f"{left}{sign} {operands[-1]}")

    def _function_name(self, function: Callable[..., Any]) -> str:
        """A name for a function that statements call."""
        self._scope[function.__name__] = function
        return function.__name__

    def statement(self, expression: str) -> str:
        """A name for the expression's value."""
        name = self._names.get(expression)
        if name is None:
            name = self._names[expression] = f"t{len(self.statements)}"
            self.statements.append(f"{name} = {expression}")
        return name

    def text(self, results: Sequence[str], checks: Sequence[str] = ()) -> str:
        """A function of a call's leaves that gives `results`; Respecialise where one of the `checks` is false."""
        body = [*self.statements]
        if checks:
            body += [f"if not ({' and '.join(checks)}): raise Respecialise"]
        return function_text("numbers", "leaves", [*body, f"return {tuple_text(results)}"])

    def function(self, text: str) -> Host:
        """A `text`, ready to be called."""
        return compiled_functions(text, self._scope, "numbers")["numbers"]


def lines_of_host_scalars(host: Host, text: str) -> tuple[list[str], list[str], dict[str, Any]]:
    """The statements of a `text`, the names of its results, and what else it names: to be put into other functions."""
    *statements, result = (line.strip() for line in text.splitlines()[1:])
    names = result.removeprefix("return (").removesuffix(")").split(", ")[:-1]
    return statements, names, cast(FunctionType, host).__globals__
