"""Loops whose body is traced once: the turn is a symbol, and the loop is one routine.

In reading order: linear, values, independence, kinds, outside, items, gather, memory, functions, arithmetic,
conversions, iterables, recorder, record, long_traces.
"""
