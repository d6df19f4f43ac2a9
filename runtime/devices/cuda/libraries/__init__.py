"""Steps that cuBLAS, cuBLASLt, cuFFT, cuSOLVER and cuDNN do: matrix products (GEMM), Fourier transforms,
factorizations, convolutions, attention; and collectives among GPUs by NCCL.

In reading order: steps, gemm, handles, product_ways, cublaslt, cublaslt_nan_probe, trial_clock, cudnn, cufft,
cusolver_steps, cusolver, factorizations, nccl.
"""
