"""The op table: a row per elementwise op with its NumPy reference, formula in primitives, cost and derivative formula;
complex numbers, Philox.

In reading order: table, real, integer, complex, complex_functions, philox, numpy_reference, derivatives.
"""
