"""Native threads that run plans without the interpreter lock, from Python's side: encoded plans, runs and their errors,
direct calls, Ctrl-C, collectives of ranks, plans over several devices.

In reading order: engine, encode_plan, run, unread_errors, host_steps, deferred_interrupt, direct_call, promises,
communicator, collective_calls, multi_device, words/.
"""
