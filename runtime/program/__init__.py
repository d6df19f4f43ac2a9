"""Plain data and pure queries on it: Program, Plan, regions, DAGs of tasks, users' functions; protocols of Device,
Stream, Event and World.

In reading order: program, user_function, custom_calls, collective, dag, plan, report, dnn, device, world.
"""
