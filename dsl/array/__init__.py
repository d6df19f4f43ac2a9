"""`kg.Array`: its memory, streams, transfers and calls in flight.

In reading order: array, devices, conversion, in_numpy, mutation, streams, in_flight, transfer, memory.
"""
