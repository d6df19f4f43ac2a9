"""Python functions that are written at run time: lines in, with a name for each value that they use; functions out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any


class PythonText:
    """The values that the lines of a text use, each by a name."""

    def __init__(self) -> None:
        self.constants: dict[str, Any] = {}

    def constant(self, value: Any) -> str:
        """A new name for a value."""
        name = f"c{len(self.constants)}"
        self.constants[name] = value
        return name


def function_text(name: str, parameters: str, lines: Iterable[str]) -> str:
    """The text of a function of these lines."""
    return "\n".join([f"def {name}({parameters}):", *indented_lines(lines), ""])


def indented_lines(lines: Iterable[str]) -> Iterator[str]:
    return (f"    {line}" for line in lines)


def lines_in_try(lines: Iterable[str], otherwise: str, errors: str = "Exception") -> Iterator[str]:
    """The lines in a `try`; `otherwise` where they raise."""
    yield "try:"
    yield from indented_lines(lines)
    yield f"except {errors}: {otherwise}"


def tuple_text(parts: Iterable[Any], before: str = "") -> str:
    """A tuple of names, or of these numbers with a letter before each."""
    return f"({''.join(f'{before}{part}, ' for part in parts)})"


def compiled_functions(text: str, scope: Mapping[str, Any], file: str = "entry") -> dict[str, Callable[..., Any]]:
    """The functions of a text, by their names. file: what tracebacks call it."""
    names = dict(scope)
    exec(compile(text, f"<kernelgraph {file}>", "exec"), names)
    return {name: value for name, value in names.items() if name not in scope and callable(value)}
