"""Python loops recorded as one routine: the body is traced once with a symbol for the iteration number; when a loop is
captured, the operations that `functions` is made of there, indexing, sections, linear expressions, number kinds.

In reading order: linear, values, sections, kinds, memory, indexing, functions, short_sorts, arithmetic,
indexed_lists, growing_lists, iterables, recorder, record, capture.
"""
