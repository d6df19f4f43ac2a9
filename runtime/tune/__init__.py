"""Which of several plans the clock prefers: trials on early calls, the winner kept on disk.

In reading order: trial, tuner, time_limit, rivals, links.
"""
