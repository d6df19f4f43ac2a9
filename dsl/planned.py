"""A traced graph in; its program and plan out: those that an earlier process left on disk, or made now.

The key is all that they are made of: the graph with the user's lines, layouts, options, settings, this machine and GPU,
and the state of this package's files. Graphs with callbacks, which are objects of one process, are planned in each.
"""

from __future__ import annotations

import io
import os
import pickle
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NoReturn

import numpy as np

from ..compiler.graph import Graph
from ..compiler.materialize import Layout
from ..runtime.cache import Cache, digest
from ..runtime.devices.cuda_properties import GpuProperties
from ..runtime.function import Source
from ..runtime.machine import machine_of
from ..runtime.own import Callback
from ..runtime.plan import Plan
from ..runtime.program import Program
from ..runtime.settings import TABLE, settings
from ..runtime.vectors import vector_bytes, vector_library
from .devices import target
from .options import Options

MOST = 256  # plans that a process does not find, then it looks for no more: some have new shapes in each call; 0: none
_CACHE = Cache("plan")


def planned(
    graph: Graph, layouts: Sequence[Layout], kind: str, options: Options, gpu: GpuProperties
) -> tuple[Program, Plan]:
    """The program and the plan for a device of a kind. Raises GraphError."""
    key = _key(graph, (tuple(layouts), kind, options.compiling, options.streams, options.memory, gpu))
    found = None if key is None else _read(key)
    if found is None:
        found = _made(graph, layouts, kind, options, gpu)
        if key is not None:
            with suppress(Exception):  # what pickle refuses, in the words of its parts
                _CACHE.put(key, pickle.dumps(found, 5), {"function": graph.name})
    return found


def _made(
    graph: Graph, layouts: Sequence[Layout], kind: str, options: Options, gpu: GpuProperties
) -> tuple[Program, Plan]:
    from ..compiler.pipeline import build
    from ..runtime.contest import model_plan, with_batches

    machine, streams = machine_of(kind, gpu), options.streams
    program = build(graph, target(kind), layouts, **options.compiling, gpu=gpu)
    program = with_batches(program, streams, machine)
    return program, model_plan(program, streams, options.memory, machine)


def _read(key: str) -> tuple[Program, Plan] | None:
    data = _CACHE.get(key)
    if data is None:
        return None
    try:
        found: tuple[Program, Plan] = pickle.loads(data)
    except Exception:  # written by a Python or a NumPy that differs after all
        return None
    return found


def _key(graph: Graph, given: Any) -> str | None:
    """None where there is no disk cache, or the graph is none that another process can have."""
    if not settings.cache_dir or _CACHE.misses >= MOST or _PACKAGE is None:
        return None
    values = [getattr(settings, row.name) for row in TABLE if not row.name.startswith("cache_")]
    try:
        shown = _Shown().show((graph, given, values, machine_of(given[1], given[-1]), vector_bytes(), vector_library()))
    except Exception:
        return None
    return digest(_PACKAGE, shown)


class _Shown:
    """Values as bytes that are equal where the values are: pickled, with nothing said of which are one object.

    Graphs stand there by their digests, since loops with several results name their bodies as often, and users'
    functions by their own, since equal code need not be marshalled to equal bytes."""

    def __init__(self) -> None:
        self.graphs: dict[int, str] = {}
        self.table: Any = {Graph: self._graph, Source: _source, Callback: _callback}

    def show(self, value: Any) -> bytes:
        file = io.BytesIO()
        pickler = pickle.Pickler(file, 5)
        pickler.fast, pickler.dispatch_table = True, self.table
        pickler.dump(value)
        return file.getvalue()

    def _graph(self, graph: Graph) -> tuple[Any, ...]:
        if id(graph) not in self.graphs:
            parts = graph.nodes, graph.inputs, graph.numbers, graph.outputs, graph.lines, graph.name
            self.graphs[id(graph)] = digest(self.show(parts))
        return Graph, (self.graphs[id(graph)],)


def _source(source: Source) -> tuple[Any, ...]:
    return Source, (source.name, source.digest)


def _callback(callback: Callback) -> NoReturn:
    raise pickle.PicklingError("another process has another")


def _package() -> tuple[object, ...] | None:
    """What tells the files that make plans from earlier and later ones; None where they are no files."""
    top = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    found = []
    try:
        for folder in ("dsl", "compiler", "compiler/targets", "runtime", "runtime/devices"):
            with os.scandir(os.path.join(top, folder)) as entries:
                for entry in entries:
                    if entry.is_file():
                        status = entry.stat()
                        found.append((folder, entry.name, status.st_size, status.st_mtime_ns))
    except OSError:
        return None
    return top, sorted(found), sys.version_info[:3], np.__version__


_PACKAGE = _package()  # now: a file that changes later is not the one that was imported
