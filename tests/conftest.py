"""Options of the whole test suite; what tests cache on disk goes to a folder of their own."""

from __future__ import annotations

import gc
import os

import pytest
from hypothesis import settings

# No test depends on the clock: what is compiled stays so, but where a test says otherwise.
os.environ.setdefault("KERNELGRAPH_NUMPY", "0")

# An example takes as long as a busy machine lets it, and some compile.
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write golden files anew")


def pytest_collection_finish() -> None:
    """Tests that collect garbage need not walk every module and test each time."""
    gc.collect()
    gc.freeze()


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Nor what tests of other files have left in caches, which takes a second where a test collects garbage."""
    if nextitem is not None and nextitem.path != item.path:
        gc.collect()
        gc.freeze()
