"""Graph to Graph: rewrites that every target wants.

In reading order: simplify, materialize, matmul_epilogue.
"""
