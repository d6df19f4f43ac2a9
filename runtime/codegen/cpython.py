"""Where CPython and NumPy keep what machine code reads in their objects: byte offsets from an object's address."""

from __future__ import annotations

# CPython 3.11 and later, where the self-tests of `native_callable` and `direct_call` have seen that it is so: any
# object (the head of each ends in its type, and is larger without the interpreter lock), bytes, NumPy's arrays. A
# ctypes object has its address where an array has it.
HEAD = object.__basicsize__
TYPE_AT, LENGTH_AT, BYTES_AT = HEAD - 8, HEAD, HEAD + 16
DATA_AT, NDIM_AT, SHAPE_AT, STRIDES_AT, DTYPE_AT = HEAD, HEAD + 8, HEAD + 16, HEAD + 24, HEAD + 40
