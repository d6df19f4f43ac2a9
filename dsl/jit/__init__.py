"""What happens at a call: decorator, cache key, specialisations, launcher, graph breaks.

In reading order: kernel_graph, eager, options, signature, trace_function, traced_function, specializations, launcher,
write_back, methods, graph_break, segments, trace_check, pickling.
"""
