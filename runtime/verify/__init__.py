"""Is a finished plan safe? Shares no code with `schedule`.

In reading order: plan, control_flow, overlap, multi_device.
"""
