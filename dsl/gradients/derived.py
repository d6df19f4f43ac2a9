"""Functions made of functions: what is done in a trace, as a decorated function that begins one where there is none."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Hashable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ...runtime.core.readable_text import with_article
from ...runtime.core.settings import override
from ..core.errors import ArgumentsError
from ..jit.kernel_graph import KernelGraph
from ..jit.methods import undecorated
from ..trace.trace import current_trace

if TYPE_CHECKING:
    from ..jit.kernel_graph import P

Body = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]


def plain_function(what: str, function: Any) -> tuple[Callable[..., Any], dict[str, Any]]:
    """A function as it was before it was decorated, and its decorator's options.

    Raises ArgumentsError for what cannot be called."""
    if isinstance(function, KernelGraph):
        return function._pickled()[0], dict(function._pickled()[1])
    if not callable(function):
        raise ArgumentsError(
            f"kg.{what} takes a function, not {with_article(type(function).__name__)}; write kg.{what}(f)(x)"
        )
    return undecorated(function), {}


def derived_kernel_graph(
    what: str,
    function: Callable[P, Any],
    body: Body,
    key: Hashable,
    like: bool = True,
    defaults: bool = True,
    in_numpy: Body | None = None,
) -> KernelGraph[P, Any]:
    """What `body(function, args, options)` does in a trace, as a decorated function.

    key: what tells bodies of one function apart: the same function and key give the same object, whose compiled plans
    are kept. like: its parameters are the function's. defaults: arguments that a call leaves out are given too.
    in_numpy: what does that on NumPy's arrays where there is no trace, if anything can."""
    derived = _DerivedBody(body, in_numpy, (what, key))
    try:
        return _kept(what, function, derived, like, defaults)
    except TypeError:  # a function without a hash
        return _make_derived_function(what, function, derived, like, defaults)


class _DerivedBody:
    """What is done, told apart by its key."""

    __slots__ = ("in_numpy", "key", "run")

    def __init__(self, run: Body, in_numpy: Body | None, key: Hashable) -> None:
        self.run, self.in_numpy, self.key = run, in_numpy, key

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _DerivedBody) and self.key == other.key


def _make_derived_function(
    what: str, function: Any, body: _DerivedBody, like: bool, defaults: bool
) -> KernelGraph[Any, Any]:
    plain, given = plain_function(what, function)
    run, in_numpy = body.run, body.in_numpy

    def derived_function(*args: Any, **options: Any) -> Any:
        if current_trace() is None:  # where compiling is switched off there is no trace yet
            if in_numpy is not None:
                return in_numpy(plain, args, options)
            with override(disable=False):
                return KernelGraph(derived_function, **given)(*args, **options)
        return run(plain, args, options)

    name = getattr(plain, "__name__", type(plain).__name__)
    derived_function.__name__ = derived_function.__qualname__ = f"{what}_{name}"
    derived_function.__doc__ = f"kg.{what} of {name}."
    derived_function.leaves_out_defaults = not defaults  # type: ignore[attr-defined]
    if like and not isinstance(plain, np.ufunc):  # whose defaults are not for passing
        with contextlib.suppress(TypeError, ValueError):
            derived_function.__signature__ = inspect.signature(plain)  # type: ignore[attr-defined]
    if in_numpy is None or given.get("untraceable") == "split":
        given = {**given, "untraceable": "refuse"}  # a derivative is of one whole trace: NumPy has none
    if not like or "static_argnames" not in given:
        given = {k: v for k, v in given.items() if k != "static_argnames"}
    return KernelGraph(derived_function, **given)


_kept = lru_cache(256)(_make_derived_function)
