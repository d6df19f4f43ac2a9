"""Graphs to programs: the pipeline that runs the stages (passes, fusion, lowering, targets) and checks the graph after
each.

In reading order: pipeline, core/, graph/, ops/, kernel/, sequential/, layout/, passes/, decompose/, fusion/, lowering/,
targets/, joining/, derive/, placement/.
"""
