"""The errors of the project. They are all that is raised on purpose and no plain ValueError or TypeError."""

from __future__ import annotations

import os
import sys
import warnings


class KernelGraphError(Exception):
    """The base of the errors below."""


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


def warn_at_user_line(text: str) -> None:
    """A RuntimeWarning at the innermost line outside of this package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith((_PACKAGE, "<kernelgraph")):
        frame = frame.f_back
    warnings.warn_explicit(text, RuntimeWarning, frame.f_code.co_filename, frame.f_lineno)
