"""What each folder may import, and how folders are laid out: the table and the rules of docs/architecture.md.

Imports within functions and under TYPE_CHECKING count. `python -m tests.test_imports` prints the table as it is.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
LAYERS = ("runtime", "compiler", "dsl")
FILES = sorted(path.relative_to(ROOT) for layer in LAYERS for path in (ROOT / layer).rglob("*.py"))
FOLDERS = sorted({str(path.parent) for path in FILES})
MODULES = {path.with_suffix("").parts: path for path in FILES}

# folder -> the folders that its files may import from, beside itself; whoever adds one says why in the commit
ALLOWED: dict[str, str] = {
    "runtime": "",
    "runtime/codegen": "runtime/core runtime/program",
    "runtime/core": "",
    "runtime/devices": "runtime/core runtime/devices/cuda/driver runtime/interpret runtime/program",
    "runtime/devices/cpu": (
        "runtime/codegen runtime/core runtime/engine runtime/engine/words runtime/interpret runtime/program"
    ),
    "runtime/devices/cuda": (
        "runtime/core runtime/devices/cuda/compile runtime/devices/cuda/driver runtime/devices/cuda/graphs "
        "runtime/devices/cuda/libraries runtime/devices/cuda/memory runtime/devices/cuda/modules runtime/engine "
        "runtime/interpret runtime/program"
    ),
    "runtime/devices/cuda/compile": "runtime/codegen runtime/core runtime/devices/cuda/modules runtime/program",
    "runtime/devices/cuda/driver": "runtime/codegen runtime/core runtime/engine runtime/program",
    "runtime/devices/cuda/graphs": (
        "runtime/core runtime/devices/cuda/driver runtime/devices/cuda/libraries runtime/devices/cuda/modules "
        "runtime/interpret runtime/program"
    ),
    "runtime/devices/cuda/libraries": (
        "runtime/core runtime/devices/cuda/driver runtime/devices/cuda/modules runtime/program"
    ),
    "runtime/devices/cuda/memory": "runtime/core runtime/devices/cuda/driver runtime/engine",
    "runtime/devices/cuda/modules": "runtime/core runtime/devices/cuda/driver runtime/program",
    "runtime/engine": "runtime/codegen runtime/core runtime/engine/words runtime/interpret runtime/program",
    "runtime/engine/words": "runtime/codegen",
    "runtime/interpret": "runtime/core runtime/program",
    "runtime/program": "runtime/core",
    "runtime/schedule": "runtime/core runtime/program",
    "runtime/tune": "runtime/core runtime/interpret runtime/program runtime/schedule runtime/verify",
    "runtime/verify": "runtime/core runtime/program",
    "runtime/worlds": "runtime/core runtime/program",
    "compiler": (
        "compiler/core compiler/decompose compiler/fusion compiler/graph compiler/lowering compiler/passes "
        "compiler/targets runtime/core runtime/program runtime/schedule"
    ),
    "compiler/core": "runtime/core runtime/program",
    "compiler/decompose": (
        "compiler/core compiler/graph compiler/layout compiler/passes runtime/core runtime/interpret runtime/program"
    ),
    "compiler/derive": (
        "compiler/core compiler/derive/control_flow compiler/derive/core compiler/derive/rules compiler/graph "
        "compiler/ops compiler/passes runtime/core"
    ),
    "compiler/derive/control_flow": (
        "compiler/core compiler/derive/core compiler/derive/rules compiler/graph compiler/sequential runtime/core"
    ),
    "compiler/derive/core": "compiler/core compiler/graph compiler/ops runtime/core",
    "compiler/derive/rules": (
        "compiler/core compiler/decompose compiler/derive/core compiler/graph compiler/ops runtime/program"
    ),
    "compiler/fusion": (
        "compiler/core compiler/graph compiler/layout compiler/ops compiler/passes compiler/targets runtime/core"
    ),
    "compiler/graph": "compiler/core compiler/ops compiler/sequential runtime/core runtime/interpret runtime/program",
    "compiler/kernel": "compiler/core runtime/core runtime/program",
    "compiler/layout": "compiler/core compiler/graph compiler/kernel runtime/core runtime/program",
    "compiler/lowering": (
        "compiler/core compiler/fusion compiler/graph compiler/kernel compiler/layout compiler/ops compiler/passes "
        "compiler/sequential compiler/targets runtime/core runtime/program"
    ),
    "compiler/ops": "compiler/core compiler/kernel runtime/core runtime/program",
    "compiler/passes": (
        "compiler/core compiler/graph compiler/kernel compiler/layout compiler/ops compiler/sequential runtime/core"
    ),
    "compiler/placement": "compiler/core compiler/graph compiler/ops runtime/core runtime/program",
    "compiler/joining": (
        "compiler compiler/fusion compiler/graph compiler/lowering compiler/ops compiler/passes compiler/targets "
        "runtime/core"
    ),
    "compiler/sequential": "compiler/core compiler/kernel compiler/ops runtime/core runtime/program",
    "compiler/targets": (
        "compiler/core compiler/kernel compiler/sequential compiler/targets/cpu compiler/targets/cuda "
        "compiler/targets/cuda/algorithms runtime/codegen runtime/core runtime/program runtime/schedule"
    ),
    "compiler/targets/cpu": (
        "compiler/core compiler/graph compiler/kernel compiler/layout compiler/sequential runtime/core runtime/program"
    ),
    "compiler/targets/cuda": "compiler/core compiler/kernel compiler/sequential runtime/core runtime/program",
    "compiler/targets/cuda/algorithms": (
        "compiler/core compiler/kernel compiler/layout compiler/targets/cuda runtime/core runtime/program"
    ),
    "dsl": "",
    "dsl/api": (
        "compiler/core compiler/graph compiler/ops dsl/array dsl/core dsl/environment dsl/functions dsl/interop "
        "dsl/jit dsl/trace runtime/codegen runtime/core runtime/engine runtime/program"
    ),
    "dsl/array": "compiler/core dsl/core runtime/core runtime/devices runtime/program",
    "dsl/control_flow": ("compiler/core compiler/graph dsl/core dsl/functions dsl/trace runtime/core"),
    "dsl/core": "compiler/core compiler/graph runtime/core",
    "dsl/devices": (
        "compiler compiler/core compiler/graph compiler/placement compiler/targets dsl/array dsl/core dsl/environment "
        "dsl/gradients dsl/jit dsl/trace runtime/core runtime/devices runtime/engine runtime/program "
        "runtime/schedule runtime/tune runtime/verify runtime/worlds"
    ),
    "dsl/environment": (
        "compiler/core dsl/array dsl/control_flow dsl/core dsl/functions dsl/interop dsl/trace runtime/core"
    ),
    "dsl/functions": (
        "compiler/core compiler/graph compiler/ops dsl/array dsl/core dsl/trace runtime/core runtime/interpret"
    ),
    "dsl/gradients": (
        "compiler/core compiler/derive compiler/derive/core compiler/graph dsl/array dsl/core dsl/jit dsl/trace "
        "runtime/codegen runtime/core"
    ),
    "dsl/interop": "compiler/core compiler/graph dsl/array dsl/core runtime/core runtime/program",
    "dsl/jit": (
        "compiler compiler/core compiler/graph compiler/joining compiler/ops compiler/passes compiler/targets "
        "dsl/array dsl/core dsl/environment dsl/functions dsl/interop dsl/recorded_loops dsl/report dsl/state "
        "dsl/trace runtime/core runtime/devices runtime/engine runtime/interpret runtime/program runtime/schedule "
        "runtime/tune"
    ),
    "dsl/report": "runtime/core",
    "dsl/state": "compiler/graph dsl/array dsl/core dsl/environment dsl/trace runtime/core",
    "dsl/stores": (
        "compiler/core compiler/graph dsl/array dsl/core dsl/devices dsl/jit runtime/core runtime/engine "
        "runtime/program"
    ),
    "dsl/trace": "compiler/core compiler/graph compiler/ops dsl/core dsl/interop runtime/core",
    "dsl/recorded_loops": (
        "compiler/core compiler/graph compiler/kernel compiler/ops compiler/sequential dsl/control_flow dsl/core "
        "dsl/trace runtime/core"
    ),
    "dsl/inspection": (
        "compiler compiler/graph dsl/api dsl/array dsl/core dsl/jit dsl/report runtime/codegen runtime/core "
        "runtime/devices runtime/program runtime/schedule"
    ),
}
# The front end's doors: of compiler and runtime it sees these, and `dsl/jit` also what compiles.
SEEN_BY_ALL = {"compiler/core", "compiler/graph", "compiler/ops", "runtime/core", "runtime/program", "runtime/devices"}
SEEN_BY_JIT = {
    "compiler", "compiler/joining", "compiler/passes", "runtime/schedule", "runtime/tune"
}  # fmt: skip
DOORS: dict[str, set[str]] = {  # named exceptions
    "dsl/api": {"runtime/codegen", "runtime/engine"},
    "dsl/devices": {
        "compiler",
        "compiler/placement",
        "compiler/targets",
        "runtime/engine",
        "runtime/schedule",
        "runtime/tune",
        "runtime/verify",
        "runtime/worlds",
    },
    "dsl/functions": {"runtime/interpret"},
    "dsl/stores": {"runtime/engine"},
    "dsl/gradients": {"compiler/derive", "compiler/derive/core", "runtime/codegen"},
    # a kept plan is of one CPU; what an assignment at indices means, an argument is written by
    "dsl/jit": {"compiler/targets", "runtime/engine", "runtime/interpret"},
    "dsl/recorded_loops": {"compiler/kernel", "compiler/sequential"},  # what is recorded is a kernel
    "dsl/inspection": {"compiler", "runtime/codegen", "runtime/schedule"},  # which shows what these made
}
# what draws stands above, and is loaded when somebody looks
BY_NAME = {"dsl/api/profile.py": "..inspection.views", "dsl/jit/kernel_graph.py": "..inspection.views"}
# two implementations of one meaning share data, no code
STRANGERS = {
    "runtime/verify": {"runtime/schedule", "runtime/tune"},
    "runtime/interpret": {"runtime/engine", "runtime/engine/words", "runtime/devices"},
}
# library -> the folders or files that may import it, by a statement or by `import_module`
HOMES: dict[str, tuple[str, ...]] = {
    "numba": (
        "runtime/codegen/numba_functions.py",
        "runtime/core/allocators.py",
        "runtime/devices/cuda/compile/numba_parts.py",
    ),
    "llvmlite": (
        "runtime/codegen/llvm_jit.py",
        "runtime/codegen/numba_functions.py",
        "runtime/devices/cuda/compile/",
    ),
    "ctypes": (
        "dsl/core/spec.py",
        "dsl/interop/dlpack.py",
        "runtime/codegen/",
        "runtime/core/host_pool.py",
        "runtime/tune/time_limit.py",
        "runtime/devices/cuda/driver/",
        "runtime/devices/cuda/graphs/host_control_flow.py",
        "runtime/devices/cuda/libraries/",
        "runtime/devices/cuda/memory/transfer.py",
        "runtime/devices/cuda/modules/launch.py",
        "runtime/engine/",
        "runtime/interpret/library_calls.py",
        "runtime/interpret/serial.py",
    ),
    "cuda": (
        "runtime/devices/cuda/compile/compile.py",
        "runtime/devices/cuda/driver/context.py",
    ),
    "nvmath": ("runtime/devices/cuda/libraries/",),
    "nccl": ("runtime/devices/cuda/libraries/nccl.py",),
    "mpi4py": ("runtime/worlds/mpi.py",),
}
# imported within functions: what a light start does not need, and what only errors and people need
HEAVY = {
    "compiler/decompose/rules",
    "compiler/graph/interpret",
    "compiler/targets/cpu/kernel",
    "compiler/targets/cpu/matmul",
    "compiler/targets/cpu/matvec",
    "compiler/targets/cpu/running",
    "compiler/targets/cpu/sequential",
    "compiler/targets/cpu/shifted_rows",
    "compiler/targets/cpu/strips",
    "compiler/targets/cuda/algorithms/custom_kernel",
    "compiler/targets/cuda/algorithms/table",
    "compiler/targets/cuda/kernel",
    "compiler/targets/cuda/sequential",
    "dsl/control_flow/hooks",
    "dsl/control_flow/rewrite",
    "dsl/control_flow/source",
    "dsl/array/mutation",
    "dsl/functions/numpy_creation",
    "dsl/functions/tables",
    "dsl/interop/device_sharing",
    "dsl/interop/host_import",
    "dsl/jit/kernel_graph",
    "dsl/jit/plan_cache",
    "dsl/recorded_loops/capture",
    "runtime/codegen/numba_functions",
    "runtime/core/readable_text",
    "runtime/core/settings",
    "runtime/devices/cuda/driver/early_start",
    "runtime/devices/cuda/libraries/nccl",
    "runtime/engine/run",
    "runtime/verify/plan",
    "runtime/worlds/mpi",
}
# one family, one kind of kernel a file
CROWDED = {"dsl/functions", "compiler/derive/rules", "compiler/targets/cpu"}
MOST_FILES, LONGEST_CYCLE = 15, 3
CYCLES = {  # within a folder
    "compiler/lowering/gathers.py compiler/lowering/kernels.py",
    "dsl/jit/eager.py dsl/jit/kernel_graph.py dsl/jit/methods.py",
    "runtime/program/plan.py runtime/program/program.py",
}


class Import(NamedTuple):
    """One name that a file imports: from which of our files (or which library), and whether within a function."""

    source: Path
    name: str
    target: Path | None
    library: str
    lazy: bool


def module(*parts: str) -> Path | None:
    return MODULES.get(parts) or MODULES.get((*parts, "__init__"))


def imports(path: Path, tree: ast.AST) -> Iterator[Import]:
    nodes = [(tree, False)]
    while nodes:
        node, lazy = nodes.pop()
        if isinstance(node, ast.ImportFrom) and node.level:
            base = path.parent.parts[: len(path.parent.parts) - node.level + 1]
            stem = (*base, *(node.module.split(".") if node.module else ()))
            for alias in node.names:
                target = module(*stem, alias.name) or module(*stem)
                yield Import(path, alias.name, target, "", lazy)
        elif isinstance(node, ast.ImportFrom):
            yield Import(path, node.names[0].name, None, node.module or "", lazy)
        elif isinstance(node, ast.Import):
            yield from (Import(path, alias.name, None, alias.name, lazy) for alias in node.names)
        elif isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) == "import_module":
            yield Import(path, "", None, str(getattr(node.args[0], "value", "")), lazy)
        within = lazy or isinstance(node, ast.FunctionDef | ast.Lambda)
        nodes.extend((child, within) for child in ast.iter_child_nodes(node))


@cache
def every() -> tuple[Import, ...]:
    return tuple(one for path in FILES for one in imports(path, ast.parse((ROOT / path).read_text(encoding="utf-8"))))


@cache
def folders() -> dict[str, set[str]]:
    """Which folders each one imports from. What a package itself has (`__path__`) is no import of its files."""
    found: dict[str, set[str]] = {folder: set() for folder in FOLDERS}
    for one in every():
        if one.target and one.target.name != "__init__.py" and one.target.parent != one.source.parent:
            found[str(one.source.parent)].add(str(one.target.parent))
    return found


def cycles(graph: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """The strongly connected components of more than one node."""
    reach = {node: {node} for node in graph}
    grown = True
    while grown:
        grown = False
        for node, others in graph.items():
            new = set().union(*(reach.get(other, {other}) for other in others)) - reach[node]
            reach[node] |= new
            grown = grown or bool(new)
    found = {tuple(sorted(b for b in reach[a] if b in graph and a in reach[b])) for a in graph}
    return sorted(list(c) for c in found if len(c) > 1)


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_imports_what_the_table_says(folder: str) -> None:
    """No more, and the table has no row that nothing needs."""
    assert folders()[folder] == set(ALLOWED[folder].split())


def test_the_table_has_no_other_rows() -> None:
    assert set(ALLOWED) == set(FOLDERS)


def test_the_table_points_down() -> None:
    for folder, below in ALLOWED.items():
        layer = LAYERS.index(folder.split("/")[0])
        assert all(LAYERS.index(other.split("/")[0]) <= layer for other in below.split()), folder


@pytest.mark.parametrize("layer", LAYERS)
def test_no_folders_import_each_other_in_a_circle(layer: str) -> None:
    graph = {f: below.split() for f, below in ALLOWED.items() if f.split("/")[0] == layer}
    assert not cycles(graph)


def test_files_that_import_each_other_in_a_circle_are_few_and_known() -> None:
    graph = defaultdict(set)
    for one in every():
        if one.target and one.target.parent == one.source.parent and one.target != one.source:
            graph[str(one.source)].add(str(one.target))
    found = cycles(graph)
    assert {" ".join(c) for c in found} == CYCLES
    assert all(len(c) <= LONGEST_CYCLE for c in found)


@pytest.mark.parametrize("folder", [f for f in FOLDERS if f.startswith("dsl")])
def test_the_front_end_goes_through_its_doors(folder: str) -> None:
    doors = SEEN_BY_ALL | (SEEN_BY_JIT if folder == "dsl/jit" else set()) | DOORS.get(folder, set())
    assert {f for f in folders()[folder] if not f.startswith("dsl")} <= doors
    devices = {one.target for one in every() if str(one.source.parent) == folder and one.target}
    devices = {path for path in devices if path.is_relative_to("runtime/devices")}
    assert devices <= {Path("runtime/devices/registry.py")}


@pytest.mark.parametrize("folder", STRANGERS)
def test_what_checks_each_other_shares_no_code(folder: str) -> None:
    assert not folders()[folder] & STRANGERS[folder]


@pytest.mark.parametrize("library", HOMES)
def test_a_library_is_imported_in_few_places(library: str) -> None:
    users = {str(one.source) for one in every() if re.match(rf"{library}(\.|$)", one.library)}
    strays = {user for user in users if not any(user.startswith(home) for home in HOMES[library])}
    unused = {home for home in HOMES[library] if not any(user.startswith(home) for user in users)}
    assert not strays and not unused


def test_the_view_alone_is_imported_by_its_name_from_below() -> None:
    found = {}
    for path in FILES:
        text = (ROOT / path).read_text(encoding="utf-8")
        if name := re.search(r'^VIEW = "(.*?)"', text, re.MULTILINE):
            found[str(path)] = name[1]
            assert module(*path.parts[:1], *name[1].strip(".").split("."))
    assert found == BY_NAME


def test_only_what_is_heavy_is_imported_late() -> None:
    """An import within a function is for the start's sake, never for a cycle's."""
    late = {str(one.target.with_suffix("")) for one in every() if one.lazy and one.target}
    assert late == HEAVY


def test_no_file_uses_private_names_of_another() -> None:
    found = [f"{i.source}: {i.name}" for i in every() if i.target and re.match(r"_[^_]", i.name)]
    assert not found


def test_the_package_does_not_import_itself_by_name() -> None:
    assert not [str(one.source) for one in every() if one.library.split(".")[0] == "kernelgraph"]


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_says_what_it_is_for(folder: str) -> None:
    """Its `__init__` is a docstring: a sentence, and its files and folders in reading order. The files are few."""
    tree = ast.parse((ROOT / folder / "__init__.py").read_text(encoding="utf-8"))
    assert len(tree.body) == 1
    first, _, order = (ast.get_docstring(tree) or "").partition("In reading order: ")
    assert first.strip().endswith((".", "`.")) or "? " in first
    files = {p.stem for p in FILES if str(p.parent) == folder and p.stem != "__init__"}
    below = {f"{p.parent.name}/" for p in FILES if str(p.parent.parent) == folder and p.stem == "__init__"}
    if len(files | below) > 1:
        assert sorted(re.split(r",\s+", order.strip().removesuffix("."))) == sorted(files | below)
    assert len(files) <= MOST_FILES or folder in CROWDED


def test_the_roots_are_nearly_empty() -> None:
    assert {str(p) for p in FILES if len(p.parts) == 2 and p.name != "__init__.py"} == {"compiler/pipeline.py"}


if __name__ == "__main__":
    for name, others in folders().items():
        print(f'    "{name}": "{" ".join(sorted(others))}",')
