"""Graph and its typed nodes, the one builder that makes them, loops, branches and custom derivatives as nodes, and the
interpreter that is the meaning.

In reading order: graph, precision, builder, control_flow, interpret.
"""
