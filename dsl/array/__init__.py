"""`kg.Array`: its memory, spec, streams, transfers and calls in flight.

In reading order: spec, array, devices, conversion, in_numpy, mutation, streams, in_flight, transfer, memory.
"""
