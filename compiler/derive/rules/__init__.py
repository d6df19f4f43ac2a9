"""A rule for each op and each host call, one family a file; the formulas of elementwise rows are in `compiler/ops`.

In reading order: map, structure, collectives, reduce, assignment, cumulative, convolution, fourier, linalg,
factorization, order, host.
"""
