"""Program to Plan: streams, waits and places.

In reading order: schedule, cost_model, surroundings, assign_streams, waits, memory_plan, antichain, memory_orders,
batching, timeline.
"""
