"""What rules are made of: an operation, its cotangents, and the kinds of rules.

In reading order: call, cotangents, kinds, matrix, inline.
"""
