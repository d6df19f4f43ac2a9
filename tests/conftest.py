"""Options of the whole test suite. It keeps no plans on disk: tests change what makes plans, and later ones would find
them there."""

from __future__ import annotations

import gc

import pytest

from kernelgraph.dsl import planned

planned.MOST = 0


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write golden files anew")


def pytest_collection_finish() -> None:
    """Tests that collect garbage need not walk every module and test each time."""
    gc.collect()
    gc.freeze()
