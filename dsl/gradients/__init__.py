"""`kg.grad`, `vmap` and custom derivatives: arguments chosen, a function traced as a region of its own,
differentiated, and put into the trace; the rules of each op are in `compiler/derive`.

In reading order: options, region, user_functions, derived, gradients, custom_rules, rows, batching.
"""
