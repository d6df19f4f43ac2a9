"""Decides whether two regions of memory share a byte. It is the verifier's own answer, exact where the scheduler's may
be cautious."""

from __future__ import annotations

from math import gcd

from ..program.program import Region

# Past this many open cases the answer is a cautious yes.
CASES = 10_000


def regions_share_byte(a: Region, a_base: int, b: Region, b_base: int) -> bool:
    """Whether two regions share a byte; their buffers start at the bases. Exact, but True past 10,000 open cases.

    A byte of each is its start plus a sum of strides times indices; equal bytes are a solution of one linear equation
    with bounded unknowns. Unknowns of equal stride are one; the largest stride is settled first.
    """
    if 0 in a.shape or 0 in b.shape:
        return False
    target = b_base + b.offset - a_base - a.offset
    bounds: dict[int, int] = {}
    terms = [(s, n - 1) for n, s in zip(a.shape, a.strides, strict=True)] + [(1, a.itemsize - 1)]
    terms += [(-s, n - 1) for n, s in zip(b.shape, b.strides, strict=True)] + [(-1, b.itemsize - 1)]
    for stride, bound in terms:
        if stride < 0:
            target -= stride * bound
        if stride and bound:
            bounds[abs(stride)] = bounds.get(abs(stride), 0) + bound
    _merge_overlap_strides(bounds)
    open_cases = {target}
    strides = sorted(bounds, reverse=True)
    for i, stride in enumerate(strides):
        reach = sum(s * bounds[s] for s in strides[i + 1 :])
        step = gcd(*strides[i + 1 :])
        following: set[int] = set()
        for rest in open_cases:
            least = max(0, -((reach - rest) // stride))
            most = min(bounds[stride], rest // stride)
            if most - least >= CASES:
                return True
            for count in range(least, most + 1):
                left = rest - count * stride
                if left == 0 or (step and left % step == 0):
                    following.add(left)
        if len(following) > CASES:
            return True
        open_cases = following
    return 0 in open_cases


def _merge_overlap_strides(bounds: dict[int, int]) -> None:
    """Make one unknown of two where the smaller stride leaves out no multiple between two steps of the larger."""
    ordered = sorted(bounds)
    while len(ordered) > 1:
        small, large = ordered[0], ordered[1]
        if large % small == 0 and bounds[small] >= large // small - 1:
            bounds[small] += bounds.pop(large) * (large // small)
            del ordered[1]
        else:
            del ordered[0]


def byte_strides_of_verified_region(region: Region) -> tuple[int, list[tuple[int, int]]]:
    """The bytes of a region as (start, [(length, stride)] outermost first). Axes of one element are dropped, runs
    joined."""
    axes: list[tuple[int, int]] = []
    for length, stride in [*zip(region.shape, region.strides, strict=True), (region.itemsize, 1)]:
        if length == 1:
            continue
        if axes and axes[-1][1] == stride * length:
            axes[-1] = (axes[-1][0] * length, stride)
        else:
            axes.append((length, stride))
    return region.offset, axes
