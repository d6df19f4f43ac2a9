"""Host calls as graphs of ops that a target has kernels for.

In reading order: rules, own_kernels, searching, binary_search, histograms, order_statistics, cumulative, convolution,
assignments, linalg.
"""
