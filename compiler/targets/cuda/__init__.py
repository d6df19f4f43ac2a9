"""Loop nest to CUDA kernel text.

In reading order: kernel, kernel_text, launch_shape, elementwise, reduce, transpose, stencil, sequential, algorithms/.
"""
