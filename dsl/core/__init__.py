"""Errors at the user's line, specs of arrays, pytrees and host scalars: what all of the front end stands on.

In reading order: errors, spec, context, exact, pytree, host_scalars, object_state, undo.
"""
