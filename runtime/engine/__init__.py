"""Python's side of the engine that runs plans without the interpreter lock: encoded plans, runs and their errors,
direct calls and the words they watch, native calls and functions of numbers, Ctrl-C, collectives of ranks, plans over
several devices.

In reading order: engine, encode_plan, run, unread_errors, host_steps, deferred_interrupt, direct_call, number_function,
native_call, promises, communicator, collective_calls, masked_copy, multi_device, words/.
"""
