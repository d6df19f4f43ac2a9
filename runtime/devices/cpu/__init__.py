"""The CPU device: plans prepared for the engine, callers' streams, profiles and times of runs.

In reading order: device, streams, profile.
"""
