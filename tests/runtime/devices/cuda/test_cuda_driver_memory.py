"""What the driver takes of a GPU's memory by itself, as it is seen from its figures."""

from __future__ import annotations

from typing import Any

import pytest

from kernelgraph.runtime.devices.cuda.driver.driver import EXECUTABLE_BYTES, NODE_BYTES, CudaDriver

PAGE = 2 << 20


def driver_that_takes(taken: list[int], nodes: int) -> CudaDriver:
    """Instantiating a graph of so many nodes takes these bytes, one after the other; where they are negative somebody
    gave some back meanwhile."""
    driver: Any = object.__new__(CudaDriver)
    driver.free, driver.executable_bytes = 1 << 36, 0

    def count_nodes(graph: int, found: None, count: Any) -> int:
        count._obj.value = nodes
        return 0

    def instantiate(made: Any, graph: int, flags: int) -> int:
        driver.free -= taken.pop(0)
        made._obj.value = 77
        return 0

    driver._nodes, driver._instantiate = count_nodes, instantiate
    driver.memory_info = lambda: (driver.free, 1 << 37)
    return driver  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("taken", "nodes", "counted"),
    [
        ([0, PAGE, 0, PAGE], 1, 2 * PAGE),
        ([PAGE, -40 * PAGE, PAGE], 1, 2 * PAGE),
        ([PAGE, EXECUTABLE_BYTES + NODE_BYTES + 1, PAGE], 1, 2 * PAGE),
        ([EXECUTABLE_BYTES + 1000 * NODE_BYTES], 1000, EXECUTABLE_BYTES + 1000 * NODE_BYTES),
    ],
    ids=["in pages", "others give", "others take", "a large graph"],
)
def test_executable_graphs_are_counted_as_the_driver_takes_memory_for_them(
    taken: list[int], nodes: int, counted: int
) -> None:
    driver = driver_that_takes([*taken], nodes)
    assert [driver.instantiate(1) for _ in taken] == [(0, 77)] * len(taken)
    assert driver.executable_bytes == counted
