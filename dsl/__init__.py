"""The front end: NumPy functions traced under `@kernel_graph`, and what calls of them need.

In reading order: core/, array/, interop/, trace/, functions/, control_flow/, recorded_loops/, environment/, state/,
report/, jit/, devices/, stores/, gradients/, api/, inspection/.
"""
