"""What the clock prefers, of several plans, or of compiled code and NumPy: trials on early calls, the winner on disk.

In reading order: trial, tuner, time_limit, rivals, links.
"""
