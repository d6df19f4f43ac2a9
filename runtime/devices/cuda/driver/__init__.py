"""Driver calls, context, events, streams.

In reading order: context, driver, native_calls, words, events, streams, early_start.
"""
