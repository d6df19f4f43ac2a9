"""`kg.Array` outside of traces: devices opened by name, streams and their capture, transfers and prefetch, assignment
in place, memory limits, calls in flight, calls that run in NumPy.

In reading order: array, devices, conversion, in_numpy, mutation, streams, in_flight, transfer, memory.
"""
