"""Graph to Graph for every target: simplification, rows in scalars, views stored in memory (materialized), axis orders,
long products, online sums, matmul epilogues and precision.

In reading order: simplify, rows_in_scalars, axis_order, long_products, online_sums, materialize, matmul_epilogue,
unused_results.
"""
