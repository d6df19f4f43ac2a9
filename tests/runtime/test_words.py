"""The language of words agrees with Python."""

from __future__ import annotations

import ctypes
import sys
import types
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))
import word_functions

from kernelgraph.runtime import machine_code, native_ir

NUMBERS = st.integers(0, 1 << 20)

ENTRIES = ["gcd", "collatz", "bits", "logic", "loops"]


@pytest.fixture(scope="module")
def compiled():
    return machine_code.build(native_ir.translate([word_functions], ENTRIES, "x86_64"), "words")


@given(NUMBERS, NUMBERS, st.sampled_from(ENTRIES))
def test_native_functions_agree_with_python(compiled, a, b, name):
    function = compiled.function(name, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint64)
    assert function(a, b) == getattr(word_functions, name)(a, b) % (1 << 64)


def test_only_entries_can_be_called_from_outside(compiled):
    assert set(compiled.functions) == set(ENTRIES)


OUTSIDE = ["return [a]", "for i in range(a): pass", "a.b = 1", "x = y = 1", "return unknown", "return print(a)"]


@pytest.mark.parametrize("body", [*OUTSIDE, "return a < b < 3", "return a / b", "return a < 'b'"])
def test_what_is_outside_the_language_is_refused(body, monkeypatch):
    module = types.ModuleType("made")
    monkeypatch.setattr(native_ir, "source_of", lambda _: f"def f(a, b):\n    {body}\n")
    with pytest.raises(SyntaxError):
        native_ir.translate([module], [], "x86_64")


def test_words_are_no_python_functions():
    with pytest.raises(TypeError, match="native code"):
        native_ir.load(0)
