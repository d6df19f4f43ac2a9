"""Program to Plan: cost model, batches, streams, waits, and offsets in memory.

In reading order: schedule, cost_model, surroundings, assign_streams, waits, memory_plan, antichain, memory_orders,
batching, timeline.
"""
