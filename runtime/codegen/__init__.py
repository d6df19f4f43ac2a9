"""Text to machine code in this process.

In reading order: llvm_jit, cpu_features, elf_loader, symbols, numba_functions, dual_numbers, numba_errors,
word_language, cpython, native_callable.
"""
