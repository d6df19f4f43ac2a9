"""What derivative rules are made of: the differentiated call, cotangents and their sums, matrices with operators, the
kinds of rules, graphs copied or inlined into a builder.

In reading order: call, cotangents, kinds, matrix, inline.
"""
