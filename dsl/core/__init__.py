"""What all of the front end stands on: errors at the user's line, specs of arrays, pytrees, exact keys, code of host
scalars; an object's class, slots, attributes and containers read, compared and restored.

In reading order: errors, foreign_names, spec, context, precision, object_model, object_journal, exact, pytree,
python_text, host_scalars, object_state.
"""
