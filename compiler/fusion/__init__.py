"""Graph to groups: which nodes one kernel computes and which are stored, split reductions, and hazards of updates in
place.

In reading order: expected_kernels, storage, fuse, groups, sweeps, inplace_hazards.
"""
