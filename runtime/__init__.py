"""Programs to results: plans on streams, and the devices that run them; knows no op and no graph.

In reading order: core/, program/, interpret/, schedule/, verify/, tune/, codegen/, engine/, devices/, worlds/.
"""
