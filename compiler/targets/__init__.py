"""The table of targets: for the CPU and for CUDA, which functions print kernels, shape launches and make tasks, and
what work costs.

In reading order: target, cpu/, cuda/.
"""
