"""What derivative rules are written with: calls, walks and matrices as rules see them, cotangents and their sums,
graphs inlined into a builder.

In reading order: call, cotangents, kinds, matrix, inline.
"""
