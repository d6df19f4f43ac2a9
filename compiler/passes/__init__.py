"""Graph to Graph for every target: simplification, attention and convolutions as calls, rows in scalars, picked
elements, stacks in parts, views stored in memory (materialized), axis orders, large products in blocks, long products,
online sums, matmul epilogues and precision.

In reading order: simplify, attention, contractions, rows_in_scalars, picked_elements, stacked_parts, index_orders,
blocked_products, axis_order, long_products, online_sums, materialize, product_precision, matmul_epilogue,
unused_results.
"""
