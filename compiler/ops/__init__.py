"""The op table: a row per elementwise op with its NumPy reference, formula in primitives, cost and derivative formula;
dtype rules are in `compiler/core`.

In reading order: table, real, integer, complex, complex_functions, philox, special, special_coefficients,
numpy_reference, derivatives.
"""
