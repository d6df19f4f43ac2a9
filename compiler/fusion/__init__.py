"""Graph to groups: which nodes one kernel computes.

In reading order: fuse, groups, inplace_hazards.
"""
