"""CI cannot pass by leaving out the tests with PyTorch and JAX."""

from __future__ import annotations

import pytest

from .interop import library


def test_a_missing_library_is_a_skip_here_and_an_error_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KERNELGRAPH_REQUIRE_INTEROP", raising=False)
    with pytest.raises(pytest.skip.Exception):
        library("no_such_library")
    monkeypatch.setenv("KERNELGRAPH_REQUIRE_INTEROP", "1")
    with pytest.raises(ModuleNotFoundError):
        library("no_such_library")
