"""Routines: loop nests whose statements run in order, as one kernel; their evaluator, independent loops, and writers of
their tangents and reverse passes.

In reading order: form, body, dead_code, places, forwarding, parallel_turns, interchange, evaluate, lifting, partials,
writer, tangents, backwards.
"""
