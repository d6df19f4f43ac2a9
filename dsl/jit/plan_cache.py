"""Plans of large graphs in the disk cache: a graph and what else decides in, the Program and Plan that were made out.

The key is all that they depend on: the graph, the options and the machine as plain data, and this package's files. The
user's lines come from the trace at hand. Who can write to the cache can run code, as with machine code there.
"""

from __future__ import annotations

import io
import marshal
import os
import pickle
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from ...compiler.core.types import DType
from ...compiler.graph.graph import Graph, Line
from ...compiler.targets.target import cpu_vector_features
from ...runtime.core.disk_cache import LOADED, DiskCache, sha256_digest
from ...runtime.core.settings import settings
from ...runtime.program.plan import Plan
from ...runtime.program.program import Program

FORMAT = 1

_CACHE = DiskCache("plan")


def load_or_make_plan(graph: Graph, options: object, make: Callable[[], tuple[Program, Plan]]) -> tuple[Program, Plan]:
    """What `make` gives for a graph: from the disk cache, or made and kept there. options: what it depends on beside
    the graph, as data whose repr says all. Graphs that hold more than plain data are not kept."""
    key = _plan_cache_key(graph, options)
    data = _CACHE.get(key) if key else None
    if data is not None:
        found: tuple[Program, Plan] = _PlanUnpickler(io.BytesIO(data), graph.lines).load()
        return found
    made = make()
    if key:
        file = io.BytesIO()
        _PlanPickler(file, graph.lines).dump(made)
        _CACHE.put(key, file.getvalue(), {"name": graph.name, "nodes": len(graph.nodes)})
    return made


def _plan_cache_key(graph: Graph, options: object) -> str:
    """Empty without a cache, for more than plain data, and where the package's files have changed."""
    package = settings.cache_dir and _fingerprint_of_package()
    if not package:
        return ""
    dtypes: dict[DType, tuple[str, str]] = {}
    for node in graph.nodes:
        if (dtype := node.dtype) not in dtypes:
            dtypes[dtype] = dtype.str, dtype.name
    nodes = [(n.op, n.args, n.shape, dtypes[n.dtype], n.attrs) for n in graph.nodes]
    lines = [(str(line), len(getattr(line, "places", ()))) for line in graph.lines]
    try:
        data = marshal.dumps((nodes, graph.inputs, graph.numbers, graph.outputs, lines), 2)
    except ValueError:
        return ""
    attrs = repr([n.attrs for n in graph.nodes])  # marshal sees the bytes of a NumPy scalar, not its dtype
    versions = FORMAT, sys.version_info, np.__version__, cpu_vector_features()
    return sha256_digest(data, attrs, graph.name, options, versions, sorted(vars(settings).items()), package)


@cache
def _fingerprint_of_package() -> str:
    """Names, sizes and times of the package's files; empty where one is newer than what this process has loaded."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    found = []
    for folder, _, names in os.walk(root, followlinks=True):
        for name in names:
            if name.endswith(".py"):
                status = os.stat(path := os.path.join(folder, name))
                found.append((path, status.st_size, status.st_mtime_ns))
    fresh = not found or max(time for _, _, time in found) >= LOADED
    return "" if fresh else sha256_digest(sorted(found))


class _PlanPickler(pickle.Pickler):
    """Of a line it keeps which of the graph's lines have its places."""

    def __init__(self, file: io.BytesIO, lines: tuple[str, ...]) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self.numbers = {
            id(place): (number, i)
            for number, line in enumerate(lines)
            for i, place in enumerate(getattr(line, "places", ()))
        }

    def persistent_id(self, value: Any) -> Any:
        if type(value) is not Line:
            return None
        return str(value), tuple([self.numbers[id(place)] for place in value.places if id(place) in self.numbers])


class _PlanUnpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, lines: tuple[str, ...]) -> None:
        super().__init__(file)
        self.lines: Any = lines

    def persistent_load(self, saved: Any) -> Line:
        text, places = saved
        return Line(text, tuple([self.lines[number].places[i] for number, i in places]))
