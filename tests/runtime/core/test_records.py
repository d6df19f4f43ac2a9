"""Our `dataclass` against the standard library's, which defines what it has to do."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import sys
from types import ModuleType
from typing import Any

import pytest

from kernelgraph.runtime.core import frozen

SOURCE = """
from __future__ import annotations

@dataclass(frozen=True, slots=True)
class Frozen:
    x: int
    y: str = "y"
    z: tuple[int, ...] = field(default=(1,), compare=False)

@dataclass(frozen=True)
class Open:
    x: Any
    hidden: int = field(default=2, repr=False)

@dataclass(slots=True)
class Changing:
    x: int
    many: list[int] = field(default_factory=list)
    made: int = 0
    known: int = field(default=3)

    def __post_init__(self):
        self.made = self.x + len(self.many)

@dataclass
class Plain:
    x: int = 0

@frozen
class Own:
    x: int

    def __hash__(self):
        return 7

    def __repr__(self):
        return "own"

@dataclass(slots=True)
class Empty:
    pass
"""


def module(name: str, dataclass: Any, field: Any, frozen: Any) -> Any:
    """The classes of SOURCE, where pickle finds them."""
    made = ModuleType(name)
    vars(made).update(dataclass=dataclass, field=field, frozen=frozen)
    sys.modules[name] = made
    exec(SOURCE, vars(made))
    return made


OURS = module("made_by_ours", frozen.dataclass, frozen.field, frozen.frozen)
SLOTTED = dataclasses.dataclass(frozen=True, slots=True)
THEIRS = module("made_by_theirs", dataclasses.dataclass, dataclasses.field, SLOTTED)
CALLS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("Frozen", (1,), {}),
    ("Frozen", (1, "a"), {"z": ()}),
    ("Frozen", (), {"y": "b", "x": 1.5}),
    ("Frozen", (), {}),
    ("Frozen", (1, 2, 3, 4), {}),
    ("Frozen", (1,), {"x": 1}),
    ("Frozen", (1,), {"other": 1}),
    ("Open", ([1],), {}),
    ("Open", ("a", 3), {}),
    ("Changing", (1,), {}),
    ("Changing", (1, [2, 3]), {}),
    ("Changing", (1,), {"made": 3}),
    ("Plain", (), {}),
    ("Plain", (4,), {}),
    ("Own", (4,), {}),
    ("Empty", (), {}),
    ("Empty", (1,), {}),
]


def outcome(act: Any) -> tuple[str, str]:
    """What an action gives or raises."""
    try:
        return "gives", repr(act())
    except Exception as error:
        return type(error).__name__, str(error)


def actions(kind: Any, given: tuple[Any, ...], named: dict[str, Any]) -> list[Any]:
    def make() -> Any:
        return kind(*given, **named)

    def changed() -> Any:
        one = make()
        one.x = 5
        return one

    def deleted() -> Any:
        one = make()
        del one.x
        return hasattr(one, "x")

    return [
        make,
        lambda: make() == make(),
        lambda: make() != make(),
        lambda: make() == 3,
        lambda: {make(): 1}[make()],
        lambda: hash(make()),
        changed,
        deleted,
        lambda: hasattr(make(), "__dict__"),
        lambda: pickle.loads(pickle.dumps(make())),
        lambda: copy.copy(make()),
        lambda: copy.deepcopy(make()),
        lambda: kind.__match_args__,
        lambda: [(f.name, f.type, f.init, f.repr, f.compare, f.default) for f in dataclasses.fields(make())],
        lambda: dataclasses.is_dataclass(kind),
        lambda: dataclasses.asdict(make()),
        lambda: dataclasses.replace(make(), x=9),
        lambda: frozen.replace(make(), x=9),
    ]


@pytest.mark.parametrize(("name", "given", "named"), CALLS)
def test_what_is_done_with_one(name: str, given: tuple[Any, ...], named: dict[str, Any]) -> None:
    ours, theirs = ([outcome(act) for act in actions(getattr(made, name), given, named)] for made in (OURS, THEIRS))
    assert ours == theirs


def test_what_is_the_same_is_equal() -> None:
    """As in the standard library up to Python 3.12: fields are compared as a tuple."""
    nan = float("nan")
    assert OURS.Frozen(nan) == OURS.Frozen(nan)


def test_match() -> None:
    match OURS.Frozen(1, "a"):
        case OURS.Frozen(x, y, z):
            assert (x, y, z) == (1, "a", (1,))
        case _:
            raise AssertionError("does not match")
