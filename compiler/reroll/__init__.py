"""Python loops that were traced turn by turn become loop nodes again.

In reading order: reroll, periods, induction, rewrite, predicted_time.
"""
