"""Loop rerolling: Python loops that were traced iteration by iteration become loop nodes again: periods, induction,
joined iterations.

In reading order: reroll, periods, induction, rewrite, prediction, joining.
"""
