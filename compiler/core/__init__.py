"""Types of arrays, dtypes and the dtype rules of ops, how reductions combine, and cost models: what the compiler stands
on.

In reading order: types, combiners, cost.
"""
