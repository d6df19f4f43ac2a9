"""Machine code in this process: LLVM's JIT and an ELF loader, users' numba functions and their dual numbers, the word
language's compiler.

In reading order: llvm_jit, elf_loader, numba_functions, dual_numbers, numba_errors, word_language.
"""
