"""Program, Plan, control flow, users' functions, the Device protocol: plain data, and pure queries on it.

In reading order: program, user_function, custom_calls, dag, plan, multi_device, report, device, world.
"""
