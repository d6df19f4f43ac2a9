"""Where elements lie: arrays in buffers, index maps, operands and their strides, views of memory, shifted windows of
stencils.

In reading order: operands.
"""
