"""The kernel IR: a loop nest of primitives, and the builder that writes it.

In reading order: loop_nest, primitives, body_builder.
"""
