"""Classes as programs have them, a new object at each call: right, and traced once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from tests.object_programs import PROGRAMS, ObjectProgram

OBJECTS = 6
SAME = {"rtol": 1e-9, "atol": 1e-12}


def parts(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """The numbers, texts and arrays in a value, and where they are."""
    if isinstance(value, dict):
        for key, inside in value.items():
            yield from parts(inside, f"{name}[{key!r}]")
    elif isinstance(value, (list, tuple)):
        for i, inside in enumerate(value):
            yield from parts(inside, f"{name}[{i}]")
    elif isinstance(value, (np.ndarray, np.generic, kg.Array, int, float, str, type(None))):
        yield name, np.asarray(value) if isinstance(value, kg.Array) else value
    else:
        yield name, type(value)
        yield from parts(vars(value), name)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_a_new_object_at_each_call(program: ObjectProgram) -> None:
    f = kg.kernel_graph(program.method, device="cpu", untraceable="refuse")
    for seed in range(OBJECTS):
        mine, its = (program.make(np.random.default_rng(seed)) for _ in range(2))
        found = dict(parts((f(mine[0], *mine[1]), mine), "call"))
        expected = dict(parts((program.method(its[0], *its[1]), its), "call"))
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            if not isinstance(value, (np.ndarray, np.generic, float)):
                assert type(found[name]) is type(value) and found[name] == value, name
                continue
            assert np.asarray(found[name]).dtype == np.asarray(value).dtype, name
            np.testing.assert_allclose(found[name], value, err_msg=name, **SAME)
    assert str(f.why()).count("traced for") == 1, f.why()
