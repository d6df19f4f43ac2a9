"""What each NumPy function, operator and indexing key does to tracers, one family a file: gathers, masked selections,
creation, reductions, views of another dtype or of windows, linear algebra, host calls.

In reading order: tables, elementwise, operators, composites, creation, numpy_creation, views, manipulation, joining,
sequences, indexing, gather, masked_values, selection, reduction_calls, reductions, statistics, cumulative,
ufunc_methods, scipy_functions, sorting, histograms, topk, products, einsum, linalg, norms, least_squares, fft,
calculus, sliding_window, bitcast, host_calls, unsupported.
"""
