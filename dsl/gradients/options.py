"""What derivatives are asked for: in which arguments, within how many bytes, and how factors meet at a `where`."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any

import numpy as np

from ...compiler.derive.core.call import ReverseOptions
from ...runtime.core.frozen import frozen
from ..core.errors import ArgumentsError

Chosen = int | Sequence[int]
Place = int | str  # of an argument: its number, or its name


@frozen
class DifferentiatedArguments:
    """The arguments that a function is differentiated in, by number and by name. several: whether what is found for
    them is a tuple, or a dict where there are names."""

    numbers: tuple[int, ...]
    names: tuple[str, ...]
    several: bool

    def places(self, function: Callable[..., Any], args: Sequence[Any], options: dict[str, Any]) -> list[Place]:
        """Where they are in a call. Raises ArgumentsError."""
        chosen: list[Place] = [n + len(args) if -len(args) <= n < 0 else n for n in self.numbers]
        if self.names:
            try:
                parameters = list(inspect.signature(function).parameters)
            except (TypeError, ValueError):
                parameters = []
            for name in self.names:
                at = parameters.index(name) if name in parameters else len(args)
                chosen.append(name if name in options or at >= len(args) else at)
        if len(set(chosen)) != len(chosen):
            asked = ", ".join(map(repr, (*self.numbers, *self.names)))
            raise ArgumentsError(f"of {asked} two are one argument of this call, asked for twice; name each once")
        return chosen

    def joined(self, each: Sequence[Any]) -> Any:
        """What was found for each, as the caller gets it."""
        if self.names:
            return dict(zip((*self.numbers, *self.names), each, strict=True))
        return tuple(each) if self.several else each[0]


def choose_differentiated_arguments(
    what: str, argnums: Chosen, argnames: str | Sequence[str]
) -> DifferentiatedArguments:
    """Checked. Raises ArgumentsError."""
    try:
        names = (argnames,) if isinstance(argnames, str) else tuple(argnames)
    except TypeError:
        names = (None,)  # type: ignore[assignment]
    if not all(isinstance(name, str) for name in names):
        raise ArgumentsError(f"argnames={argnames!r} of {what}: write a name, or a tuple of names")
    single = isinstance(argnums, (int, np.integer)) and not isinstance(argnums, bool)
    given: Any = (argnums,) if single else argnums
    if not isinstance(given, (tuple, list)) or not all(
        isinstance(n, (int, np.integer)) and not isinstance(n, bool) for n in given
    ):
        raise ArgumentsError(f"argnums={argnums!r} of {what}: write a number, or a tuple of numbers")
    numbers = tuple(map(int, given))
    if len(set(numbers)) != len(numbers) or len(set(names)) != len(names):
        raise ArgumentsError(f"{what} is asked for one argument twice; name each once")
    if not numbers and not names:
        raise ArgumentsError(f"{what} is asked for no argument; write argnums=0")
    return DifferentiatedArguments(numbers, names, bool(names) or not single)


_UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def reverse_options(what: str, save: int | str, ieee: bool) -> ReverseOptions:
    """Checked. save: a number of bytes, as `256 MB` too. Raises ArgumentsError."""
    if not isinstance(ieee, (bool, np.bool_)):
        raise ArgumentsError(f"ieee={ieee!r} of {what}: write True or False")
    if isinstance(save, str):
        number, _, unit = save.strip().rpartition(" ")
        with contextlib.suppress(KeyError, ValueError, OverflowError):
            if float(number) > 0:
                return ReverseOptions(max(1, int(float(number) * _UNITS[unit])), bool(ieee))
    elif isinstance(save, (int, np.integer)) and not isinstance(save, bool) and save > 0:
        return ReverseOptions(int(save), bool(ieee))
    raise ArgumentsError(f"save={save!r} of {what}: write bytes, or a text such as '256 MB'")


# those of the derivative for which a function is being traced, which `kg.checkpoint` inside of it shares
_AROUND: ContextVar[ReverseOptions] = ContextVar("reverse_options", default=ReverseOptions())  # noqa: B039


def reverse_options_of_outer_gradient() -> ReverseOptions:
    """The options of the reverse mode that the function in progress is traced for."""
    return _AROUND.get()


@contextlib.contextmanager
def tracing_for_reverse_mode(options: ReverseOptions) -> Iterator[None]:
    """While a function is traced for reverse mode with these options."""
    token = _AROUND.set(options)
    try:
        yield
    finally:
        _AROUND.reset(token)
