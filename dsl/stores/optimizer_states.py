"""Updaters' states in files of NumPy's npz format.

What each array is, is said by one of them, and their names are numbers. Such a file is written beside its place and
moved there, so one that is there is whole.
"""

from __future__ import annotations

import json
import os
import threading
import zipfile
from collections.abc import Iterable
from typing import Any

import numpy as np

from ...runtime.program.world import Host
from ..core.errors import ArgumentsError, DTypeError
from ..core.spec import checked_dtype
from .stored_values import Key, Part

STATE_CONTENTS = "contents"  # the array of bytes that says what the others are
# of a key, by the numbers of the states, their pieces by number
StatesOfKey = dict[int, dict[int, Host]]


def write_optimizer_states(path: str | os.PathLike[str], states: Iterable[tuple[Part, Iterable[Any]]]) -> None:
    """Write the states of parts to a file."""
    contents: list[tuple[Key, int, int, str]] = []
    arrays: list[Host] = []
    for (key, piece), each in states:
        for number, array in enumerate(map(np.asarray, each)):
            contents.append((key, piece, number, str(array.dtype)))
            plain = array.dtype.isbuiltin == 1  # other dtypes NumPy's files do not have
            arrays.append(array if plain else np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}"))
    named = {STATE_CONTENTS: np.frombuffer(json.dumps(contents).encode(), np.uint8)}
    named |= {str(number): array for number, array in enumerate(arrays)}
    target = os.path.realpath(path)
    unfinished = f"{target}.{os.getpid()}.{threading.get_ident()}.new"
    try:
        with open(unfinished, "wb") as file:
            np.savez(file, **named)  # type: ignore[arg-type]
        os.replace(unfinished, target)
    except BaseException:
        if os.path.exists(unfinished):
            os.unlink(unfinished)
        raise


def read_optimizer_states(paths: Iterable[str | os.PathLike[str]]) -> dict[Key, StatesOfKey]:
    """What files hold, by key. Raises OSError where one cannot be opened, ArgumentsError where it holds no states."""
    loaded: dict[Key, StatesOfKey] = {}
    for path in paths:
        with open(path, "rb") as file:
            try:
                content = _arrays_of_file(file)
            except (Exception, zipfile.BadZipFile) as error:  # of what is cut off anything may be raised
                raise ArgumentsError(
                    f"{os.fspath(path)} is no file that save_optimizer_states has written, or not all of it: {error}"
                ) from None
        for key, piece, number, array in content:
            loaded.setdefault(key, {}).setdefault(number, {})[piece] = array
    return loaded


def _arrays_of_file(file: Any) -> list[tuple[Key, int, int, Host]]:
    found = []
    with np.load(file, allow_pickle=False) as content:
        for place, (key, piece, number, name) in enumerate(json.loads(content[STATE_CONTENTS].tobytes())):
            array, dtype = content[str(place)], checked_dtype(name)
            if type(key) not in (int, str) or array.dtype.itemsize != dtype.itemsize:
                raise DTypeError(f"array {place} is none of {dtype}")
            found.append((key, int(piece), int(number), array if array.dtype == dtype else array.view(dtype)))
    return found
