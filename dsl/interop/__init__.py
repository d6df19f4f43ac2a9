"""Memory of other libraries in and out: DLPack, the CUDA array interface, PyTorch, CuPy and JAX; shared arrays,
exported memory and what their owners' streams wait for; labelled arrays of pandas, xarray and polars.

In reading order: host_import, device_sharing, dlpack, fast_import, labelled, labelled_calls.
"""
