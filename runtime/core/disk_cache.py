"""The disk cache: a key and bytes in, the same bytes in later processes out. A key is from `sha256_digest`; or it gives
None; never an error.

An entry is one file, `<cache_dir>/<kind>/<key>`: a line of JSON (format, kind, key, size, SHA-256 of the payload and
the caller's description), then the payload. A damaged object file would end the process inside LLVM or a driver, so:

- it is read through one descriptor opened without following links; file and folder must be ours and writable by us
  alone (the permissions guard against people), and the payload's digest must hold (that guards against damage);
- it is written to a temporary file, then renamed: a reader sees all of an entry or nothing. The disk is not waited
  for, which takes milliseconds: what a machine's fall leaves of an entry has another digest.

Whatever is wrong with an entry or with the folder, the answer is None and the caller compiles again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import time
from collections.abc import Iterator, Mapping
from typing import Any

from .settings import settings

FORMAT = 1
LOADED = time.time_ns()  # when this process loaded the package
EVICTIONS = 16  # looks for what is too much, for each `cache_bytes` that are written
_HEADER_LIMIT = 1 << 16
_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _NOFOLLOW
_HAS_DIR_FD = os.open in os.supports_dir_fd  # not on Windows, whose permissions are no modes either


def sha256_digest(*parts: object) -> str:
    """The SHA-256, in hexadecimal, of parts given as text or bytes (anything else by its repr); unambiguous."""
    h = hashlib.sha256()
    for part in parts:
        data = part if isinstance(part, bytes) else part.encode() if isinstance(part, str) else repr(part).encode()
        h.update(b"%d:" % len(data))
        h.update(data)
    return h.hexdigest()


class DiskCache:
    """Entries of one kind (`cpu`, `cuda`, `tune`, ...) in the cache directory. It is the cache_dir that is in force at
    each call."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.hits = self.misses = 0

    def get(self, key: str) -> bytes | None:
        """The payload that was put under `key`, or None: absent, damaged, foreign, older, or no cache at all."""
        payload = None
        with contextlib.suppress(OSError, ValueError), self._open_kind_folder(create=False) as folder:
            payload = self._parse_entry(key, _read_cache_file(folder, key))
        if payload is None:
            self.misses += 1
        else:
            self.hits += 1
        return payload

    def put(
        self, key: str, payload: bytes, description: Mapping[str, Any] | None = None, replaces: bool = True
    ) -> bool:
        """Keep `payload`; description is JSON for people to read. False where the folder cannot be written, or holds
        another entry that stays. replaces: no such entry stays."""
        import json

        told = json.dumps(dict(description or {})).encode()
        try:
            with self._open_kind_folder(create=True) as folder:
                _write_cache_file_atomically(
                    folder, key, b"%s%s}\n%s" % (self._header_line(key, payload), told, payload), replaces
                )
                if _is_cache_eviction_due(len(payload)):
                    _evict_oldest_cache_entries(folder, settings.cache_bytes)
        except (OSError, ValueError):
            return False
        return True

    def put_first(self, key: str, payload: bytes, description: Mapping[str, Any] | None = None) -> bytes:
        """What is under `key` from now on: what another process has put there, or else `payload`."""
        if self.put(key, payload, description, replaces=False):
            return payload
        kept = self.get(key)
        if kept is None:  # damaged
            self.put(key, payload, description)
        return payload if kept is None else kept

    def description(self, key: str) -> dict[str, Any] | None:
        """What was written beside the payload of a valid entry."""
        import json

        with contextlib.suppress(OSError, ValueError), self._open_kind_folder(create=False) as folder:
            raw = _read_cache_file(folder, key)
            if self._parse_entry(key, raw) is not None:
                found = json.loads(raw[: raw.index(b"\n")])["description"]
                return found if isinstance(found, dict) else None
        return None

    def opened(self) -> contextlib.AbstractContextManager[int | str]:
        """The kind's folder while the block runs. Raises OSError where it is missing, or not ours alone."""
        return self._open_kind_folder(create=False)

    def _parse_entry(self, key: str, raw: bytes) -> bytes | None:
        end = raw.find(b"\n", 0, _HEADER_LIMIT)
        if end < 0:
            return None
        payload = raw[end + 1 :]
        return payload if raw.startswith(self._header_line(key, payload)) else None

    def _header_line(self, key: str, payload: bytes) -> bytes:
        """How the line before a payload begins, up to what the caller tells: text, so that no reader needs `json`."""
        sha256 = hashlib.sha256(payload).hexdigest()
        return (
            f'{{"format": {FORMAT}, "kind": "{self.kind}", "key": "{key}", "size": {len(payload)}, '
            f'"sha256": "{sha256}", "description": '
        ).encode()

    @contextlib.contextmanager
    def _open_kind_folder(self, create: bool) -> Iterator[int | str]:
        """The kind's folder, as a descriptor where the system can open files relative to one."""
        if not settings.cache_dir:
            raise OSError("no disk cache")
        base = settings.cache_dir
        path = os.path.join(base, self.kind)
        if create:
            os.makedirs(base, mode=0o700, exist_ok=True)
            os.makedirs(path, mode=0o700, exist_ok=True)
        if not _HAS_DIR_FD:
            yield path
            return
        outer = os.open(base, _FOLDER)
        try:
            require_cache_file_is_ours(os.fstat(outer), stat.S_ISDIR)
            inner = os.open(self.kind, _FOLDER, dir_fd=outer)
        finally:
            os.close(outer)
        try:
            require_cache_file_is_ours(os.fstat(inner), stat.S_ISDIR)
            yield inner
        finally:
            os.close(inner)


def require_cache_file_is_ours(status: os.stat_result, kind: Any) -> None:
    if not kind(status.st_mode):
        raise OSError("not a plain entry")
    if _HAS_DIR_FD and (status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)):
        raise OSError("not ours alone")


def open_cache_file_in_folder(folder: int | str, name: str, flags: int) -> int:
    if os.path.basename(name) != name:
        raise ValueError(f"{name!r} is no key")
    if isinstance(folder, int):
        return os.open(name, flags | _NOFOLLOW, 0o600, dir_fd=folder)
    return os.open(os.path.join(folder, name), flags | _NOFOLLOW, 0o600)


def _read_cache_file(folder: int | str, name: str) -> bytes:
    descriptor = open_cache_file_in_folder(folder, name, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    with os.fdopen(descriptor, "rb") as file:
        require_cache_file_is_ours(os.fstat(descriptor), stat.S_ISREG)
        return file.read()


def _write_cache_file_atomically(folder: int | str, name: str, data: bytes, replaces: bool) -> None:
    """Raises OSError where there is such a file and it stays."""
    temporary = f".{name[:16]}.{os.urandom(8).hex()}"
    descriptor = open_cache_file_in_folder(folder, temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        move = os.replace if replaces else os.link
        if isinstance(folder, int):
            move(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        else:
            move(os.path.join(folder, temporary), os.path.join(folder, name))
    except BaseException:
        remove_cache_file(folder, temporary)
        raise
    if not replaces:
        remove_cache_file(folder, temporary)


def remove_cache_file(folder: int | str, name: str) -> None:
    with contextlib.suppress(OSError):
        if isinstance(folder, int):
            os.unlink(name, dir_fd=folder)
        else:
            os.unlink(os.path.join(folder, name))


def _is_cache_eviction_due(nbytes: int) -> bool:
    """Whether one who has written so many bytes is to look at all entries, which takes long: by chance, once in a
    sixteenth of the limit that is written, by whichever processes."""
    return nbytes * EVICTIONS << 32 > int.from_bytes(os.urandom(4), "big") * settings.cache_bytes


def _evict_oldest_cache_entries(folder: int | str, limit: int) -> None:
    """Remove entries, oldest first, until the rest fit three quarters of `limit`, if all don't fit `limit`."""
    entries = []
    with os.scandir(folder) as found:
        for entry in found:
            with contextlib.suppress(FileNotFoundError):  # another process has renamed or removed it
                entries.append((entry.stat(follow_symlinks=False), entry.name))
    total = sum(status.st_size for status, _ in entries)
    if total <= limit:
        return
    for status, name in sorted(entries, key=lambda entry: entry[0].st_mtime):
        remove_cache_file(folder, name)
        total -= status.st_size
        if total <= limit * 3 // 4:
            return
