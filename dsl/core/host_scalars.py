"""Arithmetic on the caller's Python numbers, written down while tracing and done by Python itself at each call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Host = Callable[[Sequence[Any]], tuple[Any, ...]]


class Respecialise(Exception):
    """A number of this call does not fit the trace: its type or size differs from what the trace assumed."""


class HostCode:
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
            name = self._names[key] = f"c{len(self._scope)}"
            self._scope[name] = value
        return name

    def function_name(self, function: Callable[..., Any]) -> str:
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
        body += [f"return ({''.join(f'{r}, ' for r in results)})"]
        return "def numbers(leaves):\n" + "".join(f"    {line}\n" for line in body)

    def function(self, text: str) -> Host:
        """A `text`, ready to be called."""
        scope = dict(self._scope)
        exec(compile(text, "<kernelgraph numbers>", "exec"), scope)
        function: Host = scope["numbers"]
        return function
