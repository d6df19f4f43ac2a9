"""Driver calls as native functions, the GPU's context and its early start, events, streams, and what a stream's capture
holds.

In reading order: context, driver, native_calls, words, events, streams, early_start.
"""
