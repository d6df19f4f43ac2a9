"""Derivative rules of ops and host calls, a family a file: linalg, Fourier, sorts, scans, histograms, convolutions,
views, collectives; formulas of elementwise rows are in `compiler/ops`.

In reading order: map, structure, collectives, reduce, assignment, cumulative, convolution, fourier, linalg,
factorization, order, host.
"""
