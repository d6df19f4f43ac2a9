"""Plans as CUDA graphs: captured nodes, replay, executable instances, loops and branches as conditional nodes or
iterations.

In reading order: replay, capture, nodes, library_nodes, instances, native_launch, one_launch, host_control_flow,
device_control_flow, conditional_nodes.
"""
