"""A decorated method: the object in front of its arguments."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .kernel_graph import KernelGraph


class BoundKernelGraph:
    """A decorated method of one object."""

    __slots__ = ("__func__", "__self__")

    def __init__(self, function: KernelGraph, instance: Any) -> None:
        self.__func__ = function
        self.__self__ = instance

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self.__func__(self.__self__, *args, **options)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.__func__, name)
        if name in ("graph", "program", "plan", "source", "explain", "compile"):
            return functools.partial(value, self.__self__)
        return value
