"""Routines: a loop nest that runs in order, as one kernel.

In reading order: form, body, dead_code, parallel_turns, interchange, evaluate, lifting, partials, writer,
tangents, backwards.
"""
