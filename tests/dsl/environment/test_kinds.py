"""`type(x)` in traced code is what it is in plain Python."""

from __future__ import annotations

import abc
import enum
import types
from collections import namedtuple
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg

X = np.arange(6.0).reshape(2, 3)
WEIGHTS = np.ones(3)
TABLE = {"a": [1, 2], "b": (3,)}
Pair = namedtuple("Pair", "a b")


@dataclass
class Layer:
    weight: Any
    scale: float = 2.0


class Shape(abc.ABC):
    @abc.abstractmethod
    def area(self) -> Any: ...


class Square(Shape):
    def __init__(self, side: Any) -> None:
        self.side = side

    def area(self) -> Any:
        return self.side**2


class Order(enum.IntEnum):
    TWO = 2


LAYER, SQUARE, PAIR = Layer(np.ones(3)), Square(2.0), Pair(1, 2.0)
SPACE = types.SimpleNamespace(a=1.0)
LAYERS = (Layer(Layer(1.0)), {"a": Layer(2.0)}, (Layer(3.0), (Layer(4.0),)))


def helper(x: Any) -> bool:
    return type(x) is np.ndarray


# each tells what it sees as text
PROBES: list[Any] = [
    lambda x, k, d: (type(x) is np.ndarray, type(k) is int, type(d) is dict, type(d["a"]), type(d["l"]) is list),
    lambda x, k, d: (type(x[0, 0]) is np.float64, type(x.sum()).__name__, type(x[0]), type(x + 1), type(x > 1)),
    lambda x, k, d: (type(x[x > 1]) is np.ndarray, type(x.shape) is tuple, type(x.dtype) is type(np.dtype("f8"))),
    lambda x, k, d: (type(k * 2), type(k / 2), type(k + 1j), type(k * 0.5) in (int, float), bool),
    lambda x, k, d: (helper(x), helper(k), list(map(type, (k, 1, "a")))),
    lambda x, k, d: {np.ndarray: "array", int: "int", float: "float"}[type(x)],
    lambda x, k, d: (type(WEIGHTS) is np.ndarray, type(TABLE) is dict, type(TABLE["a"]) is list, type(TABLE["b"])),
    lambda x, k, d: (type(LAYER) is Layer, type(LAYER.weight), type(SQUARE) is Square, type(PAIR) is Pair),
    lambda x, k, d: [type(v) is Layer for v in (LAYER, LAYERS[0], LAYERS[0].weight, LAYERS[1]["a"], LAYERS[2][1][0])],
    lambda x, k, d: (
        type(LAYERS[0]) is type(LAYERS[2][0]),
        LAYER.__class__ is type(LAYERS[2][0]) is LAYERS[0].__class__,
    ),
    lambda x, k, d: ({type(LAYER): 1, type(LAYERS[0]): 2, Layer: 3}, {Square: 4}[type(SQUARE)]),
    lambda x, k, d: (type(SPACE) is types.SimpleNamespace, type(SPACE)(a=2).a, type(TABLE) is dict),
    lambda x, k, d: (type(Layer) is type, type(Square) is abc.ABCMeta, type(Order.TWO) is Order, type(int) is type),
    lambda x, k, d: (isinstance(Layer, type), isinstance(x, type), issubclass(abc.ABCMeta, type), type(type) is type),
    lambda x, k, d: (type(np.sin) is np.ufunc, type(helper).__name__, type(len).__name__, type(None), type(...)),
    lambda x, k, d: type("Made", (), {"k": 3})().k,
    lambda x, k, d: (type(x) == type(WEIGHTS), type(x) != type(k), type(x).__name__, str(type(k))),  # noqa: E721
    lambda x, k, d: (x.__class__ is type(x), k.__class__ is type(k), type[int] == type[int], type.__name__),
    lambda x, k, d: type(k)(3) + type(x.sum())(2),
    lambda x, k, d: [type(i) for i in (np.zeros(2), np.arange(3), np.float32(1), (x, x), [x])],
]


class Told(Exception):
    """How a function that is traced says what it sees."""


@pytest.mark.parametrize("number", range(len(PROBES)))
def test_type_gives_what_it_gives_in_python(number: int) -> None:
    def told(x: Any, k: Any, d: Any) -> Any:
        raise Told(repr(PROBES[number](x, k, d)))

    seen = []
    for function in (told, kg.kernel_graph(told, device="cpu")):
        with pytest.raises(Told) as raised:
            function(X, 5, {"a": X, "l": [1]})
        seen.append(raised.value.args)
    assert seen[0] == seen[1]


def test_what_the_type_decides() -> None:
    def compute(x: Any, k: Any) -> Any:
        return x * (2 if type(x) is np.ndarray else 3), x * (k if type(k) is int else -1)

    f = kg.kernel_graph(compute, device="cpu")
    for k in (5, 2.0, True, np.int64(3), 7):
        for found, expected in zip(f(X, k), compute(X, k), strict=True):
            np.testing.assert_array_equal(found, expected)


def test_classes_made_while_tracing() -> None:
    def compute(x: Any) -> Any:
        class Meta(type):
            def __new__(cls, name: str, bases: Any, names: Any) -> Any:
                return super().__new__(cls, name, bases, {**names, "scale": 3.0})

        class Scaled(metaclass=Meta):
            def __call__(self, x: Any) -> Any:
                return x * self.scale  # type: ignore[attr-defined]

        return Scaled()(x)

    np.testing.assert_array_equal(kg.kernel_graph(compute, device="cpu")(X), X * 3)


def test_traced_values_have_the_namespace_of_the_array_api() -> None:
    def compute(x: Any) -> Any:
        xp = x.__array_namespace__()
        return xp.sum(x * x, axis=0), xp.concat([x, xp.zeros((1, 3))]), (x > 1)[x > 1].__array_namespace__() is xp

    f = kg.kernel_graph(lambda x: compute(x)[:2], device="cpu")
    np.testing.assert_array_equal(f(X)[0], (X * X).sum(0))
    np.testing.assert_array_equal(f(X)[1], np.concatenate([X, np.zeros((1, 3))]))
