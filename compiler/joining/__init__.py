"""Joined iterations: as many of a loop's iterations in one as pay, by what graphs are predicted to take.

In reading order: iterations, prediction.
"""
