"""A decorated method: the object in front of its arguments."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import MethodType
from typing import TYPE_CHECKING, Any, Generic

from ..core.errors import error_at_user_line

if TYPE_CHECKING:
    from typing_extensions import ParamSpec, TypeVar

    from .kernel_graph import KernelGraph

    P = ParamSpec("P", default=...)
    R = TypeVar("R", default=Any)
else:
    from typing import ParamSpec, TypeVar

    P, R = ParamSpec("P"), TypeVar("R")


class BoundKernelGraph(Generic[P, R]):
    """A decorated method of one object."""

    __slots__ = ("__func__", "__self__")

    def __init__(self, function: KernelGraph, instance: Any) -> None:
        self.__func__ = function
        self.__self__ = instance

    def __call__(self, *args: P.args, **options: P.kwargs) -> R:
        try:
            result: R = self.__func__(self.__self__, *args, **options)
        except Exception as error:
            raise error_at_user_line(error)  # noqa: B904  # the same one
        return result

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.__func__, name)
        if name in ("graph", "program", "plan", "source", "explain", "report", "show", "compile"):
            return functools.partial(value, self.__self__)
        return value


def undecorated(function: Callable[..., Any]) -> Callable[..., Any]:
    """The plain method behind a decorated one. That is of an object, or an object whose `__call__` is decorated."""
    if not isinstance(function, BoundKernelGraph):
        call: Any = next((vars(kind)["__call__"] for kind in type(function).__mro__ if "__call__" in vars(kind)), None)
        if not hasattr(call, "_versions"):
            return function
        function = BoundKernelGraph(call, function)
    return MethodType(function.__func__._function, function.__self__)
