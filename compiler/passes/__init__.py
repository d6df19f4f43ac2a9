"""Graph to Graph: rewrites that every target wants.

In reading order: simplify, axis_order, materialize, matmul_epilogue, unused_results.
"""
