"""What happens at a call of a decorated function: its signature and leaves, cache key, specialisations, launcher,
write-back, calls in NumPy, graph breaks and segments, pickling; and eager operators of `kg.Array`.

In reading order: kernel_graph, eager, options, signature, trace_function, traced_function, specializations,
plan_cache, launcher, in_numpy, write_back, methods, graph_break, segments, pickling.
"""
