"""The language of words agrees with Python."""

from __future__ import annotations

import ctypes
import types

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelgraph.runtime.codegen import llvm_jit, word_language
from tests.runtime import word_functions

NUMBERS = st.integers(0, 1 << 20)

ENTRIES = ["gcd", "collatz", "bits", "logic", "loops"]


@pytest.fixture(scope="module")
def compiled():
    return llvm_jit.compile_llvm_ir(
        word_language.translate_word_language_to_llvm([word_functions], ENTRIES, "x86_64"), "words"
    )


@given(NUMBERS, NUMBERS, st.sampled_from(ENTRIES))
def test_native_functions_agree_with_python(compiled, a, b, name):
    function = compiled.function(name, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint64)
    assert function(a, b) == getattr(word_functions, name)(a, b) % (1 << 64)


def test_only_entries_can_be_called_from_outside(compiled):
    assert set(compiled.functions) == set(ENTRIES)


OUTSIDE = ["return [a]", "for i in range(a): pass", "a.b = 1", "x = y = 1", "return unknown", "return print(a)"]


@pytest.mark.parametrize("body", [*OUTSIDE, "return a < b < 3", "return a / b", "return a < 'b'"])
def test_what_is_outside_the_language_is_refused(body, monkeypatch):
    module, text = types.ModuleType("made"), f"def f(a, b):\n    {body}\n"
    exec(text, vars(module))
    monkeypatch.setattr(word_language, "word_module_source_text", lambda _: text)
    with pytest.raises(SyntaxError):
        word_language.translate_word_language_to_llvm([module], [], "x86_64")


def test_words_are_no_python_functions():
    with pytest.raises(TypeError, match="native code"):
        word_language.load(0)
