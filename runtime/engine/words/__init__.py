"""The native side of the engine, written in the word language: what native threads do with launches, streams, events,
queues, loops, signals, poison.

In reading order: records, queues, streams, calls, loops, signals, errors.
"""
