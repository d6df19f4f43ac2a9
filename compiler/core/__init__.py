"""Types of arrays, dtypes and the promotion rules of ops, how reductions combine, and models of what work costs.

In reading order: types, combiners, cost.
"""
