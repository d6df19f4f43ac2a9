"""Sort, scan, select, scatter and counting on a GPU, as tasks.

In reading order: launches, table, sort, radix_sort_text, radix_select, radix_select_text, scan, scatter,
privatized_scatter, bincount, custom_kernel.
"""
