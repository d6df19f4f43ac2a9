"""A trace in progress: tracers (which stand for arrays), NumPy's protocols, operands, and views of memory.

In reading order: tracer, trace, dispatch, operands, number_kinds, items, concrete_values, numpy_fallback,
memory_layout, view_rules, aliasing, subgraph.
"""
