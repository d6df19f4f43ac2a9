"""Is a finished plan safe? Races, overlaps and missing waits are found; shares no code with `schedule`.

In reading order: plan, control_flow, overlap, devices.
"""
