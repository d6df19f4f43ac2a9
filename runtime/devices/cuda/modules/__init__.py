"""Loaded kernels, and how they are launched.

In reading order: modules, launch, ptx_kernels, predicated_kernels.
"""
