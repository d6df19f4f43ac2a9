"""A decorated method: the object in front of its arguments."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import MethodType
from typing import TYPE_CHECKING, Any, Generic, overload

from ..core.errors import error_at_user_line

if TYPE_CHECKING:
    import numpy as np
    from typing_extensions import ParamSpec, TypeVar

    from ..array.methods import ArrayResult
    from .kernel_graph import KernelGraph

    Shape = TypeVar("Shape", bound=tuple[Any, ...])
    Scalar = TypeVar("Scalar", bound=np.generic)

    P = ParamSpec("P", default=...)
    R = TypeVar("R", default=Any)
else:
    from typing import ParamSpec, TypeVar

    P, R = ParamSpec("P"), TypeVar("R")


class Untyped:
    """To type checkers, the result of functions without annotations: only such a result fits."""


class BoundKernelGraph(Generic[P, R]):
    """A decorated method of one object."""

    __slots__ = ("__func__", "__self__")

    def __init__(self, function: KernelGraph, instance: Any) -> None:
        self.__func__ = function
        self.__self__ = instance

    if TYPE_CHECKING:  # a result that the function calls NumPy's has the methods of a `kg.Array` too

        @overload
        def __call__(self: BoundKernelGraph[P, Untyped], *args: P.args, **options: P.kwargs) -> Any: ...

        @overload
        def __call__(
            self: BoundKernelGraph[P, np.ndarray[Shape, np.dtype[Scalar]]], *args: P.args, **options: P.kwargs
        ) -> ArrayResult[Shape, Scalar]: ...

        @overload
        def __call__(self, *args: P.args, **options: P.kwargs) -> R: ...

    def __call__(self, *args: Any, **options: Any) -> Any:
        try:
            return self.__func__(self.__self__, *args, **options)
        except Exception as error:
            raise error_at_user_line(error)  # noqa: B904  # the same one

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
