"""The rest of the public `kg.*`: the namespace with NumPy's names, `cond`, `scan` and loops with bodies, nn, random,
debug, profile, elementwise functions, host and kernel calls, the Array API's info.

In reading order: namespace, control_flow, control_flow_arguments, control_flow_counts, elementwise,
custom_calls, nn, random, debug, profile, array_api_info.
"""
