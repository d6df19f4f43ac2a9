"""Which of several plans the clock prefers.

In reading order: trial, tuner.
"""
