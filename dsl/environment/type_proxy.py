"""`type`, `isinstance` and `hasattr` as traced code sees them: what they say is true of what a stand-in stands for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core.object_model import ORIGINAL, is_user_class
from ..trace.trace import current_trace
from ..trace.tracer import Tracer
from .outside_reads import OutsideProxy, is_partly_outside
from .proxies import ProxyMetaclass, original_class

_OURS = __name__.partition(".")[0] + "."


class _TypeProxyMeta(type):
    """Lets `TypeProxy` pass for `type` itself."""

    def __call__(cls, *args: Any, **options: Any) -> Any:
        if cls is TypeProxy and len(args) == 1 and not options:
            return kind_of(args[0])
        return super().__call__(*args, **options) if cls is not TypeProxy else type(*args, **options)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, type) if cls is TypeProxy else super().__instancecheck__(instance)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, type) if cls is TypeProxy else super().__subclasscheck__(subclass)

    def __getitem__(cls, item: Any) -> Any:
        return type[item]

    def __repr__(cls) -> str:
        return repr(type) if cls is TypeProxy else super().__repr__()


class TypeProxy(type, metaclass=_TypeProxyMeta):
    """Stands for `type` in traced code."""

    def __setattr__(cls, name: str, value: Any) -> None:
        (setattr if isinstance(cls, ProxyMetaclass) else type.__setattr__)(cls, name, value)

    def __delattr__(cls, name: str) -> None:
        (delattr if isinstance(cls, ProxyMetaclass) else type.__delattr__)(cls, name)


TypeProxy.__name__ = TypeProxy.__qualname__ = "type"


def kind_of(x: Any) -> Any:
    """What `type(x)` gives outside of a trace, as traced code sees that class."""
    kind = type(x)
    if kind in (type, _TypeProxyMeta, ProxyMetaclass):
        return TypeProxy
    if issubclass(kind, ProxyMetaclass):
        return type.mro(kind)[2]  # the user's metaclass, or ABCMeta
    if issubclass(kind, OutsideProxy):
        return TypeProxy if isinstance(x, type) else x._call()
    if kind.__module__.startswith(_OURS):
        seen = getattr(kind, "class_for_traced_code", None)
        return vars(kind).get(ORIGINAL) or (x.__class__ if seen is None else seen(x))
    trace = current_trace()
    if trace is None:
        return kind
    real = trace.world.users_object(x)
    original = original_class(kind if real is None else type(real))
    seen_so = is_user_class(original) or is_partly_outside(type(original), original)
    return trace.world.proxy_of(original) if seen_so else original  # as the class's name gives it


def ask_in_traced_code(ask: Callable[..., bool], x: Any, what: Any) -> bool:
    """`isinstance` and `hasattr`: arrays have a length and no hash, the numbers that look like them a hash alone."""
    return ask(kind_of(x)(0) if type(x) is Tracer else x, what)
