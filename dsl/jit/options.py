"""The options of a decorated function: as the user wrote them in, checked and in the library's own words out."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Sequence
from typing import Any, Literal, TypedDict

from ...runtime.core.frozen import frozen
from ...runtime.core.settings import settings
from ...runtime.schedule.schedule import MODES, check_schedule_streams_option
from ..array.devices import DeviceName, device_place_of_name
from ..core.errors import OptionError
from ..core.foreign_names import FOREIGN_OPTIONS, instead_of
from ..core.precision import checked_precision

UNTRACEABLE = ("warn", "numpy", "split", "refuse")


@frozen
class Options:
    """devices: kind and number of each; none where that was left open. static: parameters taken by value. precision:
    None where that was left open.
    untraceable: what becomes of programs that decide on array values as no trace can."""

    devices: tuple[tuple[str, int], ...]
    streams: str | int
    memory: str
    static: tuple[str, ...]
    fastmath: bool
    precision: str | None
    untraceable: str

    @property
    def place(self) -> tuple[str, int] | None:
        """The first device, where results go; None where it was left open."""
        return self.devices[0] if self.devices else None


class KernelGraphKeywords(TypedDict, total=False):
    """The keywords of `kernel_graph`."""

    device: DeviceName | Sequence[DeviceName] | None
    streams: Literal["auto", "max"] | int
    memory: Literal["balanced", "concurrency", "small"]
    static_argnames: str | Sequence[str]
    fastmath: bool
    precision: Literal["float32", "tf32", "bf16", "tf32x3"] | None
    untraceable: Literal["warn", "numpy", "split", "refuse"]
    mesh: Any
    in_axes: Any
    out_axes: Any


# what each is where it is not given; `untraceable` is then the setting's
OPTION_DEFAULTS: dict[str, Any] = {
    "device": None,
    "streams": "auto",
    "memory": "balanced",
    "static_argnames": (),
    "fastmath": False,
    "precision": None,
    "untraceable": settings.untraceable,
    "mesh": None,
    "in_axes": 0,
    "out_axes": 0,
}


def signature_with_options() -> inspect.Signature:
    """Of a function that takes one thing by position, and the options by name: for editors and `help`."""
    kinds = inspect.Parameter
    first = kinds("function", kinds.POSITIONAL_ONLY, default=None)
    named = [kinds(name, kinds.KEYWORD_ONLY, default=value) for name, value in OPTION_DEFAULTS.items()]
    return inspect.Signature([first, *named])


def checked_kernel_graph_options(**given: Any) -> Options:
    """The options of `kernel_graph`. Raises OptionError."""
    for name in given:
        if name not in KernelGraphKeywords.__annotations__:
            instead = instead_of(name, FOREIGN_OPTIONS, KernelGraphKeywords.__annotations__)
            raise OptionError(
                f"kernel_graph has no option {name!r}{instead}; there are "
                + ", ".join(KernelGraphKeywords.__annotations__)
            )
    values = {**OPTION_DEFAULTS, "untraceable": settings.untraceable, **given}
    devices = _device_ids_of_option(values["device"])
    memory, untraceable, static_argnames = values["memory"], values["untraceable"], values["static_argnames"]
    try:
        streams = check_schedule_streams_option(values["streams"])
    except ValueError as error:
        raise OptionError(str(error)) from None
    if memory not in MODES:
        raise OptionError(f"memory={memory!r} is no memory mode; write one of {', '.join(map(repr, MODES))}")
    if untraceable not in UNTRACEABLE:
        raise OptionError(f"untraceable={untraceable!r} is no option; write 'warn', 'numpy', 'split' or 'refuse'")
    if untraceable == "split" and len(devices) > 1:
        raise OptionError("untraceable='split' runs parts one after the other, on one device; name one")
    static = (static_argnames,) if isinstance(static_argnames, str) else static_argnames
    if not isinstance(static, Collection) or not all(isinstance(name, str) for name in static):
        raise OptionError(f"static_argnames={static!r}: write a name, or a tuple of names")
    fastmath, precision = _checked_fastmath(values["fastmath"]), values["precision"]
    if precision is not None:
        checked_precision(precision)
    return Options(devices, streams, memory, tuple(static), fastmath, precision, untraceable)


def _device_ids_of_option(given: Any) -> tuple[tuple[str, int], ...]:
    """One device, several of one kind, or none."""
    names = given if isinstance(given, (tuple, list)) else (given,)
    places = tuple(place for name in names if (place := device_place_of_name(name)) is not None)
    if isinstance(given, (tuple, list)) and (len(places) < len(names) or not places):
        raise OptionError(f"device={given!r}: write the name of each device, as in device=('cuda:0', 'cuda:1')")
    if len({*places}) < len(places):
        raise OptionError(f"device={given!r} names a device twice")
    if len({kind for kind, _ in places}) > 1:
        raise OptionError(f"device={given!r}: devices of one program are of one kind")
    return places


def _checked_fastmath(value: object) -> bool:
    if value not in (True, False):
        raise OptionError(f"fastmath={value!r} is neither True nor False")
    return bool(value)
