"""The walks that differentiate a graph, forward and in reverse, by a table of rules; and a graph batched over rows
(`vmap`).

In reading order: core/, rules/, control_flow/, table, walk, derive, batch.
"""
