"""The heaviest antichain of a partial order. Weights and who comes before whom in, elements of which none does out."""

from __future__ import annotations

from collections.abc import Sequence

from ..program.dag import bitmask_of_members, members_of_bitmask


class HeaviestAntichains:
    """Heaviest antichains of an order that may grow: each answer starts from the flow of the last one.

    By the weighted form of Dilworth's theorem (1950): the heaviest antichain weighs as much as the least flow that
    covers every element by its weight. As the order is transitive that is a transport from elements to later elements,
    found as a maximum flow by breadth-first augmenting paths (Edmonds, Karp, 1972) on bit sets; the antichain is read
    off the minimum cut.
    """

    def __init__(self, weights: Sequence[int]) -> None:
        self._supply = list(weights)
        self._demand = list(weights)
        self._unmet = bitmask_of_members([v for v, weight in enumerate(weights) if weight])
        self._flow: list[dict[int, int]] = [{} for _ in weights]  # by right element, then left element

    def heaviest_antichain(self, earlier: Sequence[int]) -> list[int]:
        """Elements of maximum total weight of which none is before another.

        earlier[b]: the set of all elements before `b` (a transitive order that contains every earlier call's).
        """
        later = [0] * len(earlier)
        for b, mask in enumerate(earlier):
            for a in members_of_bitmask(mask):
                later[a] |= 1 << b
        while True:
            from_left, into_left, end = self._find_augmenting_path(later)
            if end < 0:
                return members_of_bitmask(bitmask_of_members(into_left) & ~bitmask_of_members(from_left))
            self._augment_flow(from_left, into_left, end)

    def _find_augmenting_path(self, later: Sequence[int]) -> tuple[dict[int, int], dict[int, int], int]:
        """A shortest augmenting path: how each right and each left element was reached, and its end or -1."""
        queue = [u for u, supply in enumerate(self._supply) if supply]
        from_left: dict[int, int] = {}
        into_left: dict[int, int] = dict.fromkeys(queue, -1)
        reached = 0
        for left in queue:
            hit = later[left] & self._unmet
            if hit:
                end = (hit & -hit).bit_length() - 1
                from_left[end] = left
                return from_left, into_left, end
            fresh = later[left] & ~reached
            reached |= fresh
            for right in members_of_bitmask(fresh):
                from_left[right] = left
                for giver, amount in self._flow[right].items():
                    if amount and giver not in into_left:
                        into_left[giver] = right
                        queue.append(giver)
        return from_left, into_left, -1

    def _augment_flow(self, from_left: dict[int, int], into_left: dict[int, int], end: int) -> None:
        path, amount, right = [], self._demand[end], end
        while right >= 0:
            left = from_left[right]
            path.append((left, right))
            right = into_left[left]
            amount = min(amount, self._flow[right][left] if right >= 0 else self._supply[left])
        for left, right in path:
            self._flow[right][left] = self._flow[right].get(left, 0) + amount
            if into_left[left] >= 0:
                self._flow[into_left[left]][left] -= amount
        self._supply[path[-1][0]] -= amount
        self._demand[end] -= amount
        if not self._demand[end]:
            self._unmet &= ~(1 << end)
