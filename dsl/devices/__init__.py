"""Calls on several devices or ranks: places, device plans, meshes, collectives, `kg.distributed`, checkpoints,
data-parallel training; stores by key are in `dsl/stores`, how ranks exchange messages in `runtime/worlds`.

In reading order: places, device_plans, device_calls, distributed, copies, mesh, collectives, exchange_ways, exchanges,
way_trials, mesh_calls, data_parallel, checkpoints.
"""
