"""Graph to Graph for every target: simplification, views stored in memory (materialized), axis orders,
large products in blocks, long products, online sums, matmul epilogues and precision.

In reading order: simplify, blocked_products, axis_order, long_products, online_sums, materialize, matmul_epilogue,
unused_results.
"""
