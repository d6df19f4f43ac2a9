"""Loop nest to LLVM IR text.

In reading order: kernel, llvm_ir, llvm_module, frame, loops, body, access, gather, primitives, inline_math,
vector_libm, user_functions, reduce, interleave, multi_stream_reads, row_buffer, transpose, nontemporal_stores,
prefetch, pack, running, matvec, sequential.
"""
