"""The op table: one row per op, with its formulas, dtype rules and references.

In reading order: table, dtype_rules, real, integer, complex, complex_functions, philox, numpy_reference,
derivatives.
"""
