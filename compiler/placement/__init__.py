"""Which device computes which node: a graph for each part and the moves between them; bodies of meshes and ranks with
collectives.

In reading order: places, clusters, partition, replicate, unroll, ranks.
"""
