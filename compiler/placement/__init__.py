"""Which of several devices does what: a Graph and places in, a graph for each part and the moves between them out.

In reading order: places, clusters, partition, replicate, ranks.
"""
