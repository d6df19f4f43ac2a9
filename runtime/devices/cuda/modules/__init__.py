"""Loaded kernels, how they are launched, and small kernels written in PTX.

In reading order: modules, launch, ptx_kernels, predicated_kernels.
"""
