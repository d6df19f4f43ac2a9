"""Errors that a traced function raises hold the user's own objects, as those of the function itself."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import pytest

from tests.dsl.tracing import assert_same
from tests.dsl.world_objects import X, cpu


class Value:
    def __init__(self, n: Any) -> None:
        self.n = n

    def __repr__(self) -> str:
        return f"Value({self.n!r})"

    def method(self) -> Any:
        return self.n


class Slots:
    __slots__ = ("n",)

    def __init__(self, n: Any) -> None:
        self.n = n

    def __repr__(self) -> str:
        return f"Slots({self.n!r})"


class Items(list[Any]):
    pass


@dataclasses.dataclass
class Data:
    a: Any
    n: int = 1


class WithAttributes(Exception):
    def __init__(self, **attributes: Any) -> None:
        super().__init__("text")
        vars(self).update(attributes)


class WithSlot(Exception):
    __slots__ = ("slot",)

    def __init__(self, slot: Any) -> None:
        self.slot = slot


class Stop(BaseException):
    pass


OUTSIDE = Value(3)


def told(value: Any) -> Any:
    """All that a caller may see of what an error holds."""
    if isinstance(value, BaseException):
        own = [
            told(getattr(value, name)) for name in ("code", "filename", "name", "obj", "slot") if hasattr(value, name)
        ]
        held = {name: x for name, x in vars(value).items() if name != "__notes__"}  # which name lines
        return type(value), told(value.args), told(held), told(value.__cause__), told(value.__context__), own
    if isinstance(value, dict):
        return type(value), [(told(k), told(v)) for k, v in value.items()]
    if isinstance(value, (list, tuple, set, collections.deque)):
        return type(value), [*map(told, value)]
    if isinstance(value, (Value, Slots)):
        return type(value), told(value.n), value is OUTSIDE, str(value)[:5]
    if isinstance(value, Data):
        return type(value), told(value.a), value.n, value == value  # by its class's own way
    return told((value.__func__.__name__, value.__self__, value())) if hasattr(value, "__self__") else value


def chained() -> Exception:
    error = KeyError(OUTSIDE)
    error.__cause__ = ValueError(Value(1))
    return error


RAISED: dict[str, Callable[[], BaseException]] = {
    "made": lambda: ValueError(Value(1)),
    "outside": lambda: ValueError(OUTSIDE, Value),
    "nested": lambda: ValueError([OUTSIDE, (Value(1), {"k": OUTSIDE, OUTSIDE: 1})], {1}),
    "attributes": lambda: WithAttributes(a=OUTSIDE, b=Value(2), c=[Data(OUTSIDE)]),
    "slots": lambda: ValueError(Slots(Slots(2))),
    "items": lambda: ValueError(Items([Value(1), 2]), collections.deque([OUTSIDE])),
    "ordered": lambda: ValueError(collections.OrderedDict(a=OUTSIDE, b=2)),
    "dataclass": lambda: ValueError(Data(Value(1)), Data(2)),
    "method": lambda: ValueError(Value(4).method, OUTSIDE.method),
    "errors": lambda: ValueError(KeyError(Value(1))),
    "group": lambda: ExceptionGroup("two", [KeyError(Value(1)), WithAttributes(a=OUTSIDE)]),
    "cause": chained,
    "system": lambda: OSError(2, "no", "file"),
    "file": lambda: OSError(2, "no", OUTSIDE),
    "missing": lambda: AttributeError("no", name="m", obj=OUTSIDE),
    "slot": lambda: WithSlot(OUTSIDE),
    "exit": lambda: SystemExit(OUTSIDE),
    "no Exception": lambda: Stop(Value(1)),
}


@pytest.mark.parametrize("name", RAISED)
def test_an_error_holds_the_users_own_objects(name: str) -> None:
    make = RAISED[name]

    def function(x: Any) -> Any:
        x[0] = 5.0
        raise make()

    found = []
    for f in (function, cpu(function)):
        x = X.copy()
        for _ in range(2):
            with pytest.raises(BaseException) as caught:
                f(x)
            written = x.tolist() if isinstance(caught.value, Exception) else None
            found.append((told(caught.value), str(caught.value), written))
    assert found[0] == found[1] == found[2] == found[3]


T = TypeVar("T")


class Box(Generic[T]):
    def __init__(self, n: Any) -> None:
        self.n = n

    def __class_getitem__(cls, item: Any) -> Any:
        return super().__class_getitem__(item)  # type: ignore[misc]


def test_a_generic_class_with_a_getitem_of_its_own_is_traced_again() -> None:
    held = [2.0]

    def function(x: Any) -> Any:
        return Box[float](x).n * held[0]

    f = cpu(function)
    for k in (2.0, 3.0):
        held[0] = k
        assert_same(f(X), function(X))
