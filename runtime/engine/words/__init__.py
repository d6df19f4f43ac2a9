"""The native side of the engine, written in the word language: what native threads do with launches, streams, events,
queues, loops, signals, poison; calls from Python, and arithmetic on its numbers.

In reading order: records, queues, streams, calls, loops, signals, errors, python_calls.
"""
