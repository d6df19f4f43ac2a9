"""Calls on several devices or ranks: places, device plans, meshes, collectives, `kg.distributed`, stores by key and
their servers, checkpoints, data-parallel training; how ranks exchange messages is in `runtime/worlds`.

In reading order: places, device_plans, device_calls, distributed, copies, mesh, collectives, exchanges, mesh_calls,
data_parallel, stored_values, checkpoints, optimizer, updaters, compression, row_sparse,
server_processes, store_servers, kvstore.
"""
