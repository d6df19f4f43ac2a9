"""Errors at the user's line, pytrees and host scalars: what all of the front end stands on.

In reading order: errors, checks, context, exact, pytree, host_scalars, object_state, undo, numpy_memory.
"""
