"""What derivative rules are written with: the differentiated call, the walks as rules see them, cotangents and their
sums, matrices, graphs inlined into a builder.

In reading order: call, cotangents, kinds, matrix, inline.
"""
