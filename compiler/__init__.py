"""Graphs to programs: passes, fusion, lowering, and kernel text for each target.

In reading order: pipeline, core/, graph/, ops/, kernel/, sequential/, layout/, passes/, decompose/, fusion/, lowering/,
targets/, reroll/, derive/, placement/.
"""
