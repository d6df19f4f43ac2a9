"""Loop nest to LLVM IR text.

In reading order: kernel, llvm_ir, body, access, gather, primitives, inline_math, vector_libm, user_functions, reduce,
transpose, running, matvec, matmul, sequential.
"""
