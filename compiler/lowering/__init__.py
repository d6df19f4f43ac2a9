"""Groups to Program: buffers and regions, kernels and tasks, equal groups lowered once, gathers with reports of bad
indices, control flow.

In reading order: lower, equal_groups, kernels, gathers, control_flow, custom_kernels, sequential.
"""
