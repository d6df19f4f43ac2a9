"""How many random examples a property is tried on: half of what its test says, times KERNELGRAPH_TEST_EXAMPLES."""

from __future__ import annotations

import os


def examples(count: int) -> int:
    return max(1, round(count / 2 * float(os.environ.get("KERNELGRAPH_TEST_EXAMPLES", "1"))))
