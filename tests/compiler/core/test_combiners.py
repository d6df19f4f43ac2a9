"""How reductions join two results: every reduction of the op table has a row, and its identity changes nothing."""

import numpy as np
import pytest

from kernelgraph.compiler.core.combiners import COMBINERS
from kernelgraph.compiler.core.types import DTYPES, HALVES
from kernelgraph.compiler.kernel.primitives import PRIMITIVES
from kernelgraph.compiler.ops.table import OPS


def test_every_reduction_has_a_combiner():
    assert {row.name for row in OPS.values() if row.kind == "reduce"} == set(COMBINERS)


@pytest.mark.parametrize("row", COMBINERS.values(), ids=lambda row: row.name)
def test_the_identity_changes_nothing(row):
    for dtype in DTYPES:
        if dtype in HALVES or dtype not in PRIMITIVES[row.primitive].accepts:
            continue
        values = np.array([0, 1, 1, 0], dtype)
        joined = row.ufunc(values, np.asarray(row.identity(dtype), dtype))
        np.testing.assert_array_equal(joined.astype(dtype), values)
