"""What lies in the disk cache, and its removal. The folder in force in, entries out. Only files of ours are touched."""

from __future__ import annotations

import contextlib
import os
import stat
import time
from typing import NamedTuple

from .disk_cache import FORMAT, DiskCache, open_cache_file_in_folder, remove_cache_file, require_cache_file_is_ours
from .settings import settings


class Entry(NamedTuple):
    """One file of the disk cache. modified: seconds of the system's clock."""

    kind: str
    key: str
    nbytes: int
    modified: float


def cache_entries() -> list[Entry]:
    """What lies in the disk cache in force: files of ours, in folders that only we can write."""
    return [entry for kind in _kinds_of_disk_cache_entries() for entry in _disk_cache_entries_of_kind(kind)]


def clear_cache(older: float = 0.0) -> list[Entry]:
    """Remove the entries that are at least so many seconds old. Those that were removed are returned."""
    now, removed = time.time(), []
    for kind in _kinds_of_disk_cache_entries():
        with contextlib.suppress(OSError, ValueError), DiskCache(kind).opened() as folder:
            for entry in _disk_cache_entries_of_kind(kind):
                if now - entry.modified >= older:
                    remove_cache_file(folder, entry.key)
                    removed.append(entry)
    return removed


def _kinds_of_disk_cache_entries() -> list[str]:
    with contextlib.suppress(OSError):
        if settings.cache_dir:
            return sorted(entry.name for entry in os.scandir(settings.cache_dir) if entry.is_dir(follow_symlinks=False))
    return []


def _disk_cache_entries_of_kind(kind: str) -> list[Entry]:
    found = []
    with contextlib.suppress(OSError, ValueError), DiskCache(kind).opened() as folder:
        for name in sorted(os.listdir(folder)):
            with contextlib.suppress(OSError, ValueError):
                descriptor = open_cache_file_in_folder(folder, name, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
                with os.fdopen(descriptor, "rb") as file:
                    status = os.fstat(descriptor)
                    require_cache_file_is_ours(status, stat.S_ISREG)
                    if file.read(64).startswith(f'{{"format": {FORMAT}, "kind": "{kind}", "key": '.encode()):
                        found.append(Entry(kind, name, status.st_size, status.st_mtime))
    return found
