"""Host calls as graphs of ops that a target has kernels for.

In reading order: rules, order_statistics, histograms, cumulative, linalg.
"""
