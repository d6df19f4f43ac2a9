"""What each NumPy function does to tracers, one family a file.

In reading order: tables, elementwise, operators, composites, creation, numpy_creation, views, manipulation, joining,
sequences, indexing, gather, masked_values, selection, reductions, statistics, cumulative, ufunc_methods, sorting,
histograms, topk, products, einsum, linalg, norms, least_squares, fft, calculus, sliding_window, bitcast,
host_calls, unsupported.
"""
