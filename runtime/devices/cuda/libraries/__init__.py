"""Steps that cuBLAS, cuBLASLt, cuFFT and cuSOLVER do: matrix products (GEMM), Fourier transforms, factorizations; and
collectives among GPUs by NCCL.

In reading order: steps, gemm, handles, product_ways, cublaslt, cublaslt_nan_probe, cufft, cusolver_steps, cusolver,
factorizations, nccl.
"""
