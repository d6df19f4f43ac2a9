"""Native threads that run plans without the interpreter lock; their errors, signals and calls of ranks.

In reading order: engine, encode_plan, run, unread_errors, host_steps, deferred_interrupt, direct_call, promises,
communicator, collective_calls, multi_device, words/.
"""
