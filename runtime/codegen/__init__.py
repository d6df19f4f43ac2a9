"""LLVM IR and users' numba functions to machine code in this process.

In reading order: llvm_jit, elf_loader, numba_functions, dual_numbers, numba_errors, word_language.
"""
