"""`kg.Array` outside of traces: devices opened by name, streams and their capture, transfers and prefetch, assignment
in place, memory limits, calls in flight.

In reading order: array, devices, conversion, mutation, streams, made_of, in_flight, transfer, memory.
"""
