"""Options of the whole test suite; what tests cache on disk goes to a folder of their own."""

from __future__ import annotations

import gc

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write golden files anew")


def pytest_collection_finish() -> None:
    """Tests that collect garbage need not walk every module and test each time."""
    gc.collect()
    gc.freeze()
