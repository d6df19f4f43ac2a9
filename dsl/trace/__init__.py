"""A trace in progress: tracers (which stand for arrays), NumPy's protocols, operands, number kinds, views and aliasing
of tracers, NumPy's memory layouts; the layouts of kernels are in `compiler/layout`.

In reading order: tracer, trace, dispatch, operands, number_kinds, python_operators, chosen_containers, items,
concrete_values, numpy_fallback, memory_layout, view_rules, aliasing, failures, subgraph.
"""
