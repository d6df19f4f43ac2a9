"""Calls on several devices: places, meshes, collectives, and what trains on them.

In reading order: places, device_plans, device_calls, distributed, mesh, collectives, mesh_calls, data_parallel,
checkpoints, store_servers, kvstore.
"""
