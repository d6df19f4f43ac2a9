"""What happens at a call: decorator, cache key, specialisations, launcher, graph breaks.

In reading order: kernel_graph, options, signature, trace_function, specializations, compiled, launcher, methods,
graph_break, segments, trace_check, pickling, out_of_memory.
"""
