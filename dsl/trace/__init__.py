"""A trace in progress: the stand-ins, NumPy's protocols, operands, and who sees whose memory.

In reading order: tracer, trace, dispatch, operands, number_kinds, items, concrete_values, numpy_fallback,
memory_layout, view_rules, aliasing, subgraph.
"""
