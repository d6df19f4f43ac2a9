"""Python's own `if`, `while`, `for`, `and`, `assert` on traced values: a rewritten syntax tree, branches merged,
a journal of what they change, loops with one repeated body and its turn number.

In reading order: source, rewrite, hooks, decisions, loops, turn_number, repeated_loops, comprehensions, math_functions,
effects, savepoint, merge.
"""
