"""Python's own `if`, `while`, `for`, `and`, `assert` on traced values: a rewritten syntax tree, branches merged,
snapshots of what functions can reach, loops whose one traced body is repeated.

In reading order: source, rewrite, hooks, decisions, loops, turn_number, repeated_loops, effects,
merge.
"""
