"""What the fields of an outside dataclass hold is read through the environment."""

import contextlib
import dataclasses
import functools
from typing import Any

import numpy as np
import pytest

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


@pytest.mark.usefixtures("refusing")
def test_what_goes_past_stand_ins_is_refused() -> None:
    held = Held(1.0)

    def write(x: Any) -> Any:
        dataclasses.fields(held)[0].default = 3.0  # type: ignore[misc]
        return x

    def delete(x: Any) -> Any:
        with contextlib.suppress(AttributeError):
            object.__delattr__(held, "a")
        return x

    for f in (write, delete):
        with pytest.raises(kg.TraceError, match=r"test_dataclass_fields.py:\d+: "):
            kg.kernel_graph(f, device="cpu")(np.ones(2))
    assert held.a == 1.0 and dataclasses.fields(held)[0].default is MAKE
