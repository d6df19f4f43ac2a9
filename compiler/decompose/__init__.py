"""NumPy calls as graphs of simpler ops that a target has kernels for: sorts, searches, decompositions, scatters.

In reading order: rules, own_kernels, searching, binary_search, histograms, order_statistics, cumulative, convolution,
assignments, linalg.
"""
