"""Classes and objects of the user's that traced functions use, and how such functions are compared."""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np

import kernelgraph as kg

from .tracing import assert_same, interpreted

X = np.linspace(0.5, 2.0, 8)


def cpu(function: Any, **options: Any) -> Any:
    return kg.kernel_graph(function, device="cpu", **options)


def agree(function: Callable[..., Any], *args: Any) -> Any:
    """Interpreted, compiled and NumPy agree. Returns the decorated function."""

    def fresh() -> list[Any]:
        return [a.copy() if isinstance(a, np.ndarray) else a for a in args]

    expected = function(*fresh())
    decorated = cpu(function)
    assert_same(interpreted(function, *fresh()), expected)
    assert_same(decorated(*fresh()), expected)
    return decorated


@dataclass
class Grid:
    n: int
    spacing: float = 0.5
    weights: Any = field(default_factory=lambda: np.ones(8))
    order: ClassVar[int] = 2

    @property
    def inverse(self) -> float:
        return 1 / self.spacing

    @functools.cached_property
    def ramp(self) -> Any:
        out = np.zeros(self.n)
        out[1:] = np.arange(self.n - 1)
        return out

    def gradient(self, x: Any) -> Any:
        out = np.zeros(self.n)
        out[1:-1] = (x[2:] - x[:-2]) / (2 * self.spacing) ** self.order
        return out * self.weights

    @classmethod
    def unit(cls, n: int) -> Grid:
        return cls(n, 1.0)

    @staticmethod
    def blank(n: int) -> Any:
        return np.zeros(n)


@dataclass(frozen=True, slots=True)
class Pair:
    left: Any
    right: Any = 2.0

    def __add__(self, other: Pair) -> Pair:
        return Pair(self.left + other.left, self.right + other.right)

    def summed(self) -> Any:
        out = np.zeros_like(self.left)
        out += self.left
        out += self.right
        return out


class Base(abc.ABC):
    gain = 3.0

    def __init__(self, n: int) -> None:
        self.n = n

    @abc.abstractmethod
    def apply(self, x: Any) -> Any: ...

    def padded(self, x: Any) -> Any:
        out = np.zeros(self.n)
        out[: x.size] = x * self.gain
        return out


class Model(Base):
    def __init__(self, n: int) -> None:
        super().__init__(n)
        self.bias = np.zeros(n)

    def apply(self, x: Any) -> Any:
        return self.padded(x) + self.bias

    def padded(self, x: Any) -> Any:
        return super().padded(x) + 1

    def __call__(self, x: Any) -> Any:
        return [self.apply(x) for _ in range(2)]


class Point(NamedTuple):
    x: Any
    y: Any

    def norm(self) -> Any:
        out = np.zeros(8)
        out += self.x * self.x + self.y * self.y
        return np.sqrt(out)


GRID = Grid(8)
MODEL = Model(8)
