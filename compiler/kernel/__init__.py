"""The kernel IR: a loop nest of primitives with loads and stores, its builder, its evaluator, and constants lifted from
it.

In reading order: loop_nest, primitives, body_builder.
"""
