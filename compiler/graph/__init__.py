"""Graph, its one builder, control-flow nodes, and the interpreter that is the meaning.

In reading order: graph, builder, control_flow, interpret.
"""
