"""The options of a decorated function: as the user wrote them in, checked and in the library's own words out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..runtime.schedule import MODES, checked_streams
from .devices import parse
from .errors import OptionError

UNTRACEABLE = ("refuse", "split")


@dataclass(frozen=True, slots=True)
class Options:
    """place: the device's kind and number; None where it was left open. static: parameters taken by value.
    splits: whether programs that decide on array values are run in parts."""

    place: tuple[str, int] | None
    streams: str | int
    memory: str
    static: tuple[str, ...]
    fastmath: bool
    splits: bool


def checked(
    device: str | None = None,
    streams: str | int = "auto",
    memory: str = "balanced",
    static_argnames: str | Sequence[str] = (),
    fastmath: bool = False,
    untraceable: str = "refuse",
) -> Options:
    """The options of `kernel_graph`. Raises OptionError."""
    place = parse(device)
    try:
        streams = checked_streams(streams)
    except ValueError as error:
        raise OptionError(str(error)) from None
    if memory not in MODES:
        raise OptionError(f"memory={memory!r} is no memory mode; write one of {', '.join(map(repr, MODES))}")
    if untraceable not in UNTRACEABLE:
        raise OptionError(f"untraceable={untraceable!r} is no option; write 'refuse' or 'split'")
    static = (static_argnames,) if isinstance(static_argnames, str) else tuple(static_argnames)
    return Options(place, streams, memory, static, bool(fastmath), untraceable == "split")
