"""Loop nests and routines printed as CUDA kernel text (Python that numba.cuda compiles): blocks, warps, tiles,
stencils.

In reading order: kernel, kernel_text, launch_shape, elementwise, reduce, transpose, shifted_values, stencil,
sequential, algorithms/.
"""
