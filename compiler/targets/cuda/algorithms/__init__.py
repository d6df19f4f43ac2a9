"""Launches of CUDA kernel text that sort, scan, select, scatter and count on a GPU, and users' custom kernels, as
tasks.

In reading order: launches, table, sort, radix_sort_text, radix_select, radix_select_text, scan, scatter,
ordered_scatter, privatized_scatter, bincount, dnn, custom_kernel.
"""
