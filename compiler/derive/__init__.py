"""Graph to Graph: the derivatives of a graph, forward and reverse.

In reading order: core/, rules/, control_flow/, table, walk, derive, batch.
"""
