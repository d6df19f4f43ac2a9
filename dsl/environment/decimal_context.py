"""A context of `decimal`, on which all its arithmetic depends: read as plain data, and put back."""

from __future__ import annotations

import decimal
from collections.abc import Callable
from typing import Any

_NAMES = ("prec", "rounding", "Emin", "Emax", "capitals", "clamp")


def settings_of_context(context: decimal.Context | None = None) -> tuple[Any, ...]:
    """As plain data; by default of the context that the caller is in."""
    found = context or decimal.getcontext()
    trapped = sorted(signal.__name__ for signal, on in found.traps.items() if on)
    return (*(getattr(found, name) for name in _NAMES), *trapped)


def restorer_of_settings(context: decimal.Context | None) -> Callable[[], None]:
    """What puts a context back into its present state, but for what it has noticed."""
    found = context or decimal.getcontext()
    then = found.copy()

    def restore_settings() -> None:
        for name in (*_NAMES, "traps"):
            setattr(found, name, getattr(then, name))

    return restore_settings
