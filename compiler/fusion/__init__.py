"""Graph to groups: which nodes one kernel computes.

In reading order: fuse, groups, sweeps, inplace_hazards.
"""
