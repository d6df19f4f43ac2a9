"""The errors of the project. They are all that is raised on purpose and no plain ValueError or TypeError."""

from __future__ import annotations

import contextlib
import os
import sys
import warnings


class KernelGraphError(Exception):
    """The base of the errors below.

    >>> issubclass(kg.OutOfMemory, kg.KernelGraphError) and issubclass(kg.ShapeError, kg.KernelGraphError)
    True
    """


class PlanError(KernelGraphError):
    """A plan that could give wrong results; it is never run."""


class OutOfMemory(KernelGraphError, MemoryError):
    """A device has no room for an allocation; the device stays usable."""


class DeviceLost(KernelGraphError):
    """A device failed in a way that only a new process mends. Other devices go on."""


class CompileError(KernelGraphError):
    """A kernel's text could not be compiled or loaded. kernel: its name, where one kernel is to blame."""

    def __init__(self, message: str = "", kernel: str = "") -> None:
        super().__init__(message)
        self.kernel = kernel


class LaunchError(KernelGraphError):
    """A device refused a launch or a copy; the device stays usable."""


class RankError(KernelGraphError):
    """Another rank failed, ended, or does not come to a collective. ranks: which, as far as is known."""

    def __init__(self, message: str = "", ranks: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.ranks = ranks


def add_note_to_error_once(error: BaseException, text: str) -> None:
    """Add a line to what the error prints, once."""
    if text not in getattr(error, "__notes__", ()):
        error.add_note(text)


_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep


def _place_outside() -> tuple[str, int]:
    """File and line of the innermost code outside of this package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PASSED_OVER):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


_PASSED_OVER = (_PACKAGE, "<kernelgraph", "<frozen", contextlib.__file__)


def warn_at_user_line(text: str) -> None:
    """A RuntimeWarning at the innermost line outside of this package."""
    warnings.warn_explicit(text, RuntimeWarning, *_place_outside())


def text_at_user_line(text: str) -> str:
    """`file.py:LINE: text`, of the innermost line outside of this package."""
    file, line = _place_outside()
    return f"{os.path.basename(file)}:{line}: {text}"
