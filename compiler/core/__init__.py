"""Dtypes and dtype rules, how reductions combine, and what work costs: what all of the compiler stands on.

In reading order: types, combiners, cost.
"""
