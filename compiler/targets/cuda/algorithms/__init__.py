"""Launches of CUDA kernel text that sort, scan, select, scatter and count on a GPU, and users' custom kernels, as
tasks.

In reading order: launches, table, kernel_language, sort, radix_sort_kernels, radix_select, radix_select_kernels, scan,
scan_kernels, scatter, scatter_kernels, ordered_scatter, ordered_scatter_kernels, dnn, custom_kernel.
"""
