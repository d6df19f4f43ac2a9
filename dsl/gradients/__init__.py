"""`kg.grad` and its like: a function traced as a graph of its own, differentiated, and put into the trace.

In reading order: options, region, user_functions, derived, gradients, custom_rules, batching.
"""
