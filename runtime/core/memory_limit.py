"""The bytes that a device's memory may hold: its own limit, or the setting's."""

from __future__ import annotations

from .errors import OutOfMemory
from .settings import settings


class MemoryLimit:
    """own: the device's own limit in bytes (0: none), or None for the setting `memory_limit`."""

    __slots__ = ("own",)

    def __init__(self) -> None:
        self.own: int | None = None

    @property
    def nbytes(self) -> int:
        return settings.memory_limit if self.own is None else self.own

    def is_exceeded_by(self, reserved: int, size: int) -> bool:
        """Whether `size` bytes more than those reserved are too many."""
        limit = self.nbytes
        return bool(limit) and reserved + size > limit

    def limit_error(self, reserved: int, size: int) -> OutOfMemory:
        return OutOfMemory(f"{size} bytes more than {reserved} pass the limit of {self.nbytes} bytes")
