"""Graph to Graph: rewrites that every target wants: simplification, matmul epilogues, copies of views into memory.

In reading order: simplify, axis_order, materialize, matmul_epilogue, unused_results.
"""
