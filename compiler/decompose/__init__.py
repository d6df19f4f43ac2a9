"""NumPy calls as graphs of ops that a target has kernels for, or why it has none: sorts, searches, histograms,
quantiles, convolutions, factorizations, assignments, scatters.

In reading order: rules, own_kernels, searching, binary_search, histograms, order_statistics, sorting_networks,
cumulative, convolution, dnn, channels_last, assignments, linalg.
"""
