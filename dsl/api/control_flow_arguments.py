"""How `kg.fori_loop` and its like are called: arguments in, an error at the user's line out where they do not fit.

The functions among them are looked at before they run: a TypeError from inside would name no line of the user's.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ...runtime.core.readable_text import with_article
from ..core.errors import ArgumentsError

F = TypeVar("F", bound=Callable[..., Any])
OPERANDS = ("*operands",)  # as many as the call passes


def checks_functions_given_to_loop(**functions: Sequence[str]) -> Callable[[F], F]:
    """functions: for each parameter that is a function, the names of what it gets."""

    def add_check_of_given_functions(function: F) -> F:
        name, signature = function.__name__, inspect.signature(function)
        bare = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
        usage = f"kg.{name}{inspect.Signature(bare)}"

        @functools.wraps(function)
        def call_with_checked_parameters(*args: Any, **options: Any) -> Any:
            try:
                given = signature.bind(*args, **options).arguments
            except TypeError as error:
                raise ArgumentsError(f"{name}: {error}; it is called as {usage}") from None
            for parameter, names in functions.items():
                count = len(given.get("operands", ()))
                _check_function_parameters(
                    f"{parameter} of {name}",
                    given[parameter],
                    _operand_names_of_user_body(count) if names is OPERANDS else names,
                )
            return function(*args, **options)

        return call_with_checked_parameters  # type: ignore[return-value]

    return add_check_of_given_functions


def _operand_names_of_user_body(count: int) -> list[str]:
    return ["x"] if count == 1 else [f"x{i}" for i in range(count)]


def _check_function_parameters(what: str, function: Any, names: Sequence[str]) -> None:
    given = ", ".join(names)
    example = f"lambda {given}: ..." if given else "lambda: ..."
    if not callable(function):
        kind = "None" if function is None else with_article(type(function).__name__)
        raise ArgumentsError(f"{what} is {kind}; write a function that is called with ({given}), such as {example}")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # a builtin that tells nothing
        return
    try:
        signature.bind(*names)
    except TypeError as error:
        raise ArgumentsError(f"{what} is called with ({given}): {error}; write {example}") from None
