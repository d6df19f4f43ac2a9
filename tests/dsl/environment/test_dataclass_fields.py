"""What the fields of an outside dataclass hold is read through the environment."""

import dataclasses
import functools
from typing import Any

import numpy as np

import kernelgraph as kg

GAINS = {"a": 2.0}
MAKE = functools.partial(dict, GAINS)


@dataclasses.dataclass(unsafe_hash=True)
class Held:
    a: Any = MAKE


HELD = Held()


def test_a_default_that_changes_is_read_again() -> None:
    @kg.kernel_graph(device="cpu")
    def scale(x: Any) -> Any:
        return x * next(iter(dataclasses.fields(HELD)[0].default().values()))

    x = np.ones(2)
    assert np.array_equal(scale(x), x * 2.0)
    GAINS["a"] = 3.0
    assert np.array_equal(scale(x), x * 3.0)
