"""Groups to Program: kernels, buffers and tasks.

In reading order: lower, equal_groups, kernels, gathers, control_flow, custom_kernels, sequential.
"""
