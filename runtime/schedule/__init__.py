"""Program to Plan: machine and cost model, batches and packed launches, streams, waits, memory offsets, plan
candidates, timelines.

In reading order: schedule, cost_model, surroundings, assign_streams, waits, memory_plan, antichain, memory_orders,
batching, timeline, join.
"""
