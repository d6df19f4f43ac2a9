"""The engine itself in the language of words: its text is compiled, and Python never runs it.

In reading order: records, queues, streams, calls, loops, signals, errors.
"""
