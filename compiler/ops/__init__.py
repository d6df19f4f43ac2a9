"""The op table: one row per op, with its formulas and references.

In reading order: table, real, integer, complex, complex_functions, philox, numpy_reference, derivatives.
"""
