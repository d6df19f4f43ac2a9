"""Objects of libraries that change as they are read, wherever a function finds them: each call reads on."""

from __future__ import annotations

import io
import random
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg

LINES = "1\n2\n3\n4\n"
READERS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "default_rng": (lambda: np.random.default_rng(2), lambda source: source.integers(9) + 1.0),
    "MT19937": (lambda: np.random.Generator(np.random.MT19937(1)), lambda source: source.random()),
    "Philox": (lambda: np.random.Generator(np.random.Philox(1)), lambda source: source.normal()),
    "RandomState": (lambda: np.random.RandomState(2), lambda source: source.randint(9) + 1.0),
    "Random": (lambda: random.Random(2), lambda source: source.random()),
    "StringIO": (lambda: io.StringIO(LINES), lambda source: float(source.readline())),
    "BytesIO": (lambda: io.BytesIO(LINES.encode()), lambda source: float(source.readline())),
    "iterator": (lambda: iter([1.0, 2.0, 3.0]), next),
}


class Tagged(np.ndarray[Any, Any]):
    tag: Any


class Holder:
    __slots__ = ("tag",)
    tag: Any


def tagged_array(source: Any) -> Any:
    array = np.ones(2).view(Tagged)
    array.tag = source
    return array


def slotted(source: Any) -> Any:
    holder = Holder()
    holder.tag = source
    return holder


HOLDERS: dict[str, Callable[[Any], Any]] = {
    "array of a class": tagged_array,
    "slot": slotted,
    "namespace": lambda source: SimpleNamespace(tag=source),
}


@pytest.mark.parametrize("holder", HOLDERS)
@pytest.mark.parametrize("reader", READERS)
def test_each_call_reads_on(reader: str, holder: str) -> None:
    make, read = READERS[reader]
    x = np.array([1.0, 2.0])

    def three_calls(decorate: Callable[[Any], Any]) -> list[Any]:
        held = HOLDERS[holder](make())
        program = decorate(lambda x: x * read(held.tag))
        return [np.asarray(program(x)).tolist() for _ in range(3)]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", kg.FallbackWarning)
        assert three_calls(kg.kernel_graph(device="cpu")) == three_calls(lambda program: program)
