"""A loop nest that runs in order, as one kernel.

In reading order: form, body, evaluate, lifting.
"""
