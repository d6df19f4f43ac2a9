"""The CPU device.

In reading order: device, streams, profile.
"""
