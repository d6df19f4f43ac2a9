"""Random matrix products: batches, repeated operands, transposes, parts of larger arrays, thin and odd ones, of every
dtype that a GPU multiplies, 16-bit numbers with 32-bit results among them."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import kernelgraph as kg

DTYPES = ("float32", "float32", "bfloat16", "float16", "bfloat16", "float64")
LENGTHS = (1, 2, 3, 7, 10, 16, 31, 64, 100, 128, 255, 256, 500, 512, 777, 1000, 1024, 2048, 3136, 4096)
BATCHES = ((), (), (), (2,), (4,), (7,), (32,), (3, 4), (16, 8), (128,))
PERIOD = 65521  # a prime: numbers that are there again are nowhere in the same place
MOST_PRODUCTS, MOST_ELEMENTS = 4e10, 3e7
LYING = ("", "", "", "turned", "turned", "inside", "every second column", "backwards")


@dataclass(frozen=True)
class Operand:
    """shape: as it is multiplied; lies: how, in memory of its own."""

    shape: tuple[int, ...]
    lies: str

    @property
    def stored(self) -> tuple[int, ...]:
        *batch, rows, columns = self.shape
        match self.lies:
            case "turned":
                return (*batch, columns, rows)
            case "inside":
                return (*batch, rows + 2, columns + 3)
            case "every second column":
                return (*batch, rows, 2 * columns)
        return self.shape

    def view(self, x: Any) -> Any:
        """Of NumPy, kernelgraph and PyTorch alike."""
        match self.lies:
            case "turned":
                return x.swapaxes(-1, -2)
            case "inside":
                return x[..., 1:-1, 1:-2]
            case "every second column":
                return x[..., ::2]
            case "backwards":
                return x[..., ::-1] if isinstance(x, np.ndarray) or not hasattr(x, "flip") else x.flip(-1)
        return x


@dataclass(frozen=True)
class RandomProduct:
    """wide: whether the result of 16-bit operands is wanted in float32."""

    number: int
    dtype: str
    left: Operand
    right: Operand
    wide: bool

    @property
    def result(self) -> str:
        return "float32" if self.wide else self.dtype

    def __str__(self) -> str:
        sides = (f"{list(side.shape)} {side.lies}".strip() for side in (self.left, self.right))
        return f"{self.number}: {self.dtype} {' @ '.join(sides)}" + (" -> float32" if self.wide else "")

    def arrays(self) -> tuple[Any, Any]:
        rng = np.random.default_rng(self.number)
        kind = np.dtype(kg.bfloat16 if self.dtype == "bfloat16" else self.dtype)
        numbers = rng.standard_normal(PERIOD, np.float32).astype(kind)
        x, w = np.resize(numbers, self.left.stored), np.resize(numbers[::-1], self.right.stored)
        return x, w

    def body(self, x: Any, w: Any) -> Any:
        a, b = self.left.view(x), self.right.view(w)
        if self.wide:
            return np.matmul(a, b, dtype=np.float32)
        return (a @ b).astype(x.dtype)

    def peer(self, x: Any, w: Any) -> Any:
        """The same in PyTorch."""
        product = self.left.view(x) @ self.right.view(w)
        return product.float() if self.wide else product


def random_products(count: int, seed: int = 0) -> Iterator[RandomProduct]:
    """The first `count` of an endless list."""
    for number in range(count):
        rng = random.Random(f"{seed}, {number}")
        while True:
            m, n, k = (rng.choice(LENGTHS) for _ in range(3))
            batch = rng.choice(BATCHES)
            own = [batch, rng.choice((batch, batch, (), (1,) * len(batch)))]
            rng.shuffle(own)
            dtype = rng.choice(DTYPES)
            left, right = (
                Operand((*own[i], *lengths), rng.choice(LYING)) for i, lengths in enumerate(((m, k), (k, n)))
            )
            result = math.prod(batch) * m * n
            elements = [math.prod(left.stored), math.prod(right.stored), result]
            if 1e4 < result * k <= MOST_PRODUCTS / (8 if dtype == "float64" else 1) and max(elements) <= MOST_ELEMENTS:
                yield RandomProduct(number, dtype, left, right, dtype.endswith("16") and rng.random() < 0.5)
                break
