"""What a thread's calls depend on is put back, whenever a signal's handler raises."""

from __future__ import annotations

import sys
from types import FrameType, SimpleNamespace
from typing import Any

import pytest

import kernelgraph as kg
from kernelgraph.dsl.core.context import CallContext, context
from kernelgraph.dsl.trace.trace import trace_in_progress

MANAGERS: dict[str, Any] = {
    "trace": lambda: trace_in_progress(SimpleNamespace(alive=True)),  # type: ignore[arg-type]
    "device": lambda: kg.device("cpu:0"),
    "stream": lambda: kg.stream(kg.Stream("cpu")),
}


@pytest.mark.parametrize("depth", range(2))
@pytest.mark.parametrize("name", MANAGERS)
def test_a_signal_while_a_context_is_entered_leaves_the_one_before(name: str, depth: int) -> None:
    """Python looks for signals where a function begins: here as `put` does, and what it calls."""
    before, put, made = (context.trace, context.stream, context.device), CallContext.put.__code__, MANAGERS[name]()

    def look(frame: FrameType, event: str, argument: Any) -> None:
        outer = frame.f_back if depth else frame
        if event == "call" and outer is not None and outer.f_code is put:
            sys.setprofile(None)
            raise KeyboardInterrupt

    try:
        with pytest.raises(KeyboardInterrupt):
            sys.setprofile(look)
            try:
                with made:
                    raise AssertionError("no signal came")
            finally:
                sys.setprofile(None)
        assert (context.trace, context.stream, context.device) == before
    finally:
        context.trace = before[0]
        context.put(*before[1:])
