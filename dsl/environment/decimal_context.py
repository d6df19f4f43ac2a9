"""A context of `decimal`, on which all its arithmetic depends: read as plain data, and put back."""

from __future__ import annotations

import decimal
from typing import Any

from ..core.object_journal import Slot
from ..core.object_model import KINDS, Kind, Lens

_NAMES = ("prec", "rounding", "Emin", "Emax", "capitals", "clamp")


def settings_of_context(context: decimal.Context | None = None) -> tuple[Any, ...]:
    """All but what it has noticed; by default of the context that the caller is in."""
    *settings, _, traps = (context or decimal.getcontext()).__reduce__()[1]
    return *settings, *traps


def _put_settings(context: decimal.Context, then: decimal.Context) -> None:
    """All but what it has noticed."""
    for name in (*_NAMES, "traps"):
        setattr(context, name, getattr(then, name))


_SETTINGS = Lens(
    decimal.Context.copy, _put_settings, lambda now, then: settings_of_context(now) == settings_of_context(then)
)
KINDS[decimal.Context] = Kind(decimal.Context, state=_SETTINGS)  # of a module that few programs need


def slot_of_settings(context: decimal.Context | None) -> Slot:
    """Where a context has its settings; by default that which the caller is in."""
    return Slot(context or decimal.getcontext(), _SETTINGS)
