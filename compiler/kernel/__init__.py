"""The kernel IR: a loop nest of primitives with loads and stores, its builder, and constants lifted from it.

In reading order: loop_nest, primitives, body_builder.
"""
