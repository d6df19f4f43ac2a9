"""Derivative rules, a family a file: linalg, Fourier, sorts, scans, histograms, convolutions, attention, views,
collectives, users' scalar functions; formulas of elementwise rows are in `compiler/ops`.

In reading order: map, structure, collectives, reduce, assignment, cumulative, convolution, attention, fourier, linalg,
factorization, determinant, order, host.
"""
