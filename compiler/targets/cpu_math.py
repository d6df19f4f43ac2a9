"""Functions that are written inline rather than called from a library: (name, element type) -> formula over values."""

from __future__ import annotations

from collections.abc import Callable

from .cpu_text import Value

FLOAT_MATH: dict[tuple[str, str], Callable[..., Value]] = {}
