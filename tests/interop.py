"""Libraries whose arrays are passed to and fro."""

from __future__ import annotations

import importlib
import os
from typing import Any

import pytest


def library(name: str) -> Any:
    """The library `name`; without it the test is skipped, or fails under KERNELGRAPH_REQUIRE_INTEROP=1, as in CI."""
    if os.environ.get("KERNELGRAPH_REQUIRE_INTEROP") == "1":
        return importlib.import_module(name)
    return pytest.importorskip(name)
