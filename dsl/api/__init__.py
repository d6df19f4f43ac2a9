"""The rest of `kg.*`: the namespace, control flow, nn, random, debug, user functions and custom calls.

In reading order: namespace, control_flow, control_flow_arguments, control_flow_counts, elementwise,
custom_calls, nn, random, debug, profile, array_api_info.
"""
