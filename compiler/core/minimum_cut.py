"""A minimum cut: edges with capacities in, the vertices on the source's side out. Dinic's algorithm."""

from __future__ import annotations

NEVER = 1 << 62  # the capacity of an edge that is not cut
SOURCE, SINK = 0, 1


class FlowNetwork:
    """Vertices 0 (the source), 1 (the sink) and those added; directed edges between them."""

    def __init__(self) -> None:
        self.edges: list[list[int]] = [[], []]  # those that leave a vertex; edge e and its reverse e ^ 1 are a pair
        self.head: list[int] = []
        self.left: list[int] = []  # capacity that no flow uses

    def vertex(self) -> int:
        self.edges.append([])
        return len(self.edges) - 1

    def edge(self, start: int, end: int, capacity: int) -> None:
        number = len(self.head)
        self.edges[start].append(number)
        self.edges[end].append(number + 1)
        self.head += (end, start)
        self.left += (capacity, 0)

    def source_side(self) -> list[bool]:
        """For each vertex whether it is on the source's side of a minimum cut: of those, the cut next to the sink."""
        while (level := self._distances(SOURCE, 0))[SINK] >= 0:
            self._send_flow(level)
        return [far < 0 for far in self._distances(SINK, 1)]

    def _distances(self, start: int, turned: int) -> list[int]:
        """Of each vertex from `start` along edges that have capacity left, or against them (turned: 1); -1: no path."""
        edges, head, left = self.edges, self.head, self.left
        found = [-1] * len(edges)
        found[start], todo = 0, [start]
        for vertex in todo:
            for edge in edges[vertex]:
                if left[edge ^ turned] and found[head[edge]] < 0:
                    found[head[edge]] = found[vertex] + 1
                    todo.append(head[edge])
        return found

    def _send_flow(self, level: list[int]) -> None:
        """Send flow along shortest paths until each has an edge that is full; what leads nowhere is looked at once."""
        edges, head, left = self.edges, self.head, self.left
        following = [0] * len(edges)
        path: list[int] = []
        vertex = SOURCE
        while True:
            if vertex == SINK:
                amount = min([left[edge] for edge in path])
                for edge in path:
                    left[edge] -= amount
                    left[edge ^ 1] += amount
                full = next(place for place, edge in enumerate(path) if not left[edge])
                vertex = head[path[full] ^ 1]
                del path[full:]
            out, deeper = edges[vertex], level[vertex] + 1
            place, end = following[vertex], len(out)
            while place < end and not (left[out[place]] and level[head[out[place]]] == deeper):
                place += 1
            following[vertex] = place
            if place < end:
                path.append(out[place])
                vertex = head[out[place]]
            elif path:
                vertex = head[path.pop() ^ 1]
                following[vertex] += 1
            else:
                return
