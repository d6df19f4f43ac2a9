"""Memory of other libraries in and out: DLPack, the CUDA array interface, PyTorch, CuPy and JAX.

In reading order: host_import, device_sharing, dlpack, fast_import.
"""
