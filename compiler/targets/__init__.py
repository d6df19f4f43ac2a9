"""The table of targets, from which what lowering needs is dispatched to the CPU's or CUDA's functions: kernels, launch
shapes, tasks.

In reading order: target, cpu/, cuda/.
"""
