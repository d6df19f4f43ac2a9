"""Plans as CUDA graphs: replay, conditional nodes, control flow.

In reading order: replay, nodes, instances, one_launch, host_control_flow, device_control_flow, conditional_nodes.
"""
