"""Python's own `if`, `while`, `for`, `and`, `assert` on traced values, compiled from a rewritten syntax tree.

In reading order: source, rewrite, hooks, decisions, loops, turn_number, repeated_loops, effects,
merge.
"""
