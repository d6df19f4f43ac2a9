"""Driver calls as native functions, the GPU's context and its early start, events, streams, the time that work takes,
and what a stream's capture holds.

In reading order: context, driver, native_calls, words, events, streams, stopwatch, early_start.
"""
