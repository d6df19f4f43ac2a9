"""Loop nests and routines printed as LLVM IR text: vectors and lanes, masks, gathers, transposes, small matrix
products, libm.

In reading order: kernel, llvm_ir, body, access, gather, primitives, inline_math, vector_libm, user_functions, reduce,
transpose, unit_kernel, running, matvec, matmul, shifted_rows, sequential, rows, strips.
"""
