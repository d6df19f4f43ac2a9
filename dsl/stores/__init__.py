"""Stores by key: values pushed and pulled by devices and ranks, what they are updated with, their servers in processes
of their own, gradients in a few bits, rows alone.

In reading order: stored_values, optimizer, updaters, optimizer_states, compression, row_sparse, server_processes,
store_servers, kvstore.
"""
