"""Loaded GPU kernels, launches and argument blocks, and small kernels in PTX: copies, iteration counters, predicates,
flags, graph conditions.

In reading order: modules, launch, ptx_kernels, predicated_kernels.
"""
