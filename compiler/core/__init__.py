"""Types of arrays, dtypes and the promotion rules of ops, how reductions combine, models of what work costs, and
minimum cuts.

In reading order: types, combiners, cost, minimum_cut.
"""
