"""The engine's inner functions in the language of words, compiled to native code: launch slots, native events, streams
and queues, workers, waking, signals, poison.

In reading order: records, queues, streams, calls, loops, signals, errors.
"""
