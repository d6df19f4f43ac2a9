"""Graph to Graph for every target: simplification, views stored in memory (materialized), axis orders, matmul epilogues
and precision.

In reading order: simplify, axis_order, materialize, matmul_epilogue, unused_results.
"""
