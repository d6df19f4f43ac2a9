"""What type checkers and editors know: stubs are as the tables say, right programs and mistakes are told apart."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import warnings
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.dsl.api.namespace import NumpyNamespace
from tests.dsl.api import test_every_name as every_name
from tests.interop import library

from .stubs import METHODS_STUB, NAMESPACE_STUB, NUMPY, stubs

ROOT = Path(__file__).parent.parent.parent
HERE = Path(__file__).parent
CHECKED = [HERE / f"{name}.py" for name in ("programs", "users_program", "mistakes")]
CHECKED += sorted((ROOT / "examples").glob("*.py"))


def test_the_stubs_are_current() -> None:
    """`python -m tests.types.stubs` writes them anew."""
    if f"with NumPy {NUMPY};" not in NAMESPACE_STUB.read_text(encoding="utf-8").partition("\n")[0]:
        pytest.skip(f"the stubs have the signatures of another NumPy than {NUMPY}")
    for path, text in stubs().items():
        assert path.read_text(encoding="utf-8") == text, path.name


def results(nodes: list[ast.stmt], prefix: str = "") -> Iterator[tuple[str, str]]:
    """The path and the result's type of every function of a stub."""
    for node in nodes:
        if isinstance(node, ast.FunctionDef):
            yield prefix + node.name, ast.unparse(node.returns or ast.Constant(None))
        elif isinstance(node, ast.ClassDef):
            yield from results(node.body, f"{prefix}{node.name}.")


TYPES: dict[str, set[str]] = defaultdict(set)
for _path, _type in results(ast.parse(NAMESPACE_STUB.read_text(encoding="utf-8")).body):
    TYPES[_path].add(_type)


def fits(value: Any, kind: str) -> bool:
    """Whether a value is of the type that a stub names."""
    head, _, inner = kind.removesuffix("]").partition("[")
    if head == "Any":
        return True
    if head == "tuple":
        parts = inner.split(", ")
        every = [parts[0]] * len(value) if parts[-1] == "..." else parts
        return isinstance(value, tuple) and len(every) == len(value) and all(map(fits, value, every))
    if head == "list":
        return isinstance(value, list) and all(fits(x, inner) for x in value)
    if head.endswith("Result"):
        return type(value).__name__ == head and all(isinstance(x, kg.Array) for x in value)
    classes: dict[str, Any] = {"Array": kg.Array, "int": int, "builtins.bool": bool, "None": type(None)}
    classes["_Key"] = kg.random.Key
    return isinstance(value, classes.get(head) or np.dtype)


class Checked:
    """`kg`, whose functions compare what they give with the stub."""

    def __init__(self, space: Any, path: str = "") -> None:
        self.space, self.path = space, path

    def __getattr__(self, name: str) -> Any:
        value, path = getattr(self.space, name), self.path + name
        if isinstance(value, NumpyNamespace):
            return Checked(value, f"{path}.")
        if path not in TYPES:
            return value

        def call(*args: Any, **options: Any) -> Any:
            result = value(*args, **options)
            assert any(fits(result, kind) for kind in TYPES[path]), f"kg.{path} gives {result!r}, not {TYPES[path]}"
            return result

        return call


MORE = """
kg.shape(x); kg.size(x); kg.ndim(x); kg.isrealobj(x); kg.iscomplexobj(x); kg.array_equiv(x, x); kg.ix_(x > 0, x > 1)
kg.histogram2d(x, x); kg.histogramdd(s); kg.polydiv(x, x); kg.topk(x, 2); kg.unique(x); kg.unique(x, return_index=True)
kg.intersect1d(x, x, return_indices=True); kg.average(x); kg.average(x, returned=True); kg.polyfit(x, x, 1)
kg.linalg.eig(s); kg.linalg.eigvals(s); kg.linalg.svd(s, compute_uv=False); kg.linalg.qr(s, mode="r"); kg.argwhere(x)
kg.triu_indices_from(s); kg.tril_indices_from(s); kg.vsplit(s, 3); kg.dsplit(s[None], 3); kg.putmask(x, x > 9, 0.0)
kg.extract(x > 1, x); kg.flatnonzero(x); kg.setdiff1d(x, x); kg.union1d(x, x); kg.trim_zeros(x); kg.roots(x)
kg.nn.softmax(x); kg.nn.one_hot(kg.asarray([1, 2]), 3); kg.nn.attention(s, s, s); kg.nn.layer_norm(s); kg.relu(x)
kg.random.normal(kg.random.key(1), (2,)); kg.random.choice(kg.random.key(1), x, (2,)); kg.fft.fftfreq(4)
kg.lib.stride_tricks.sliding_window_view(x, 2); kg.debug.check_finite(x); kg.einsum_path("i,i", x, x); kg.kaiser(4, 1.0)
"""


def test_results_are_what_the_stub_says() -> None:
    rows = [case.values for case in every_name.CASES if case.values[0] != "methods"]
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for group, name in rows:
            row, arguments, _ = every_name.prepared(str(group), str(name))
            row(Checked(kg), *(kg.asarray(a, device="cpu") for a in arguments))
        here = {"kg": Checked(kg), "x": kg.asarray([1.0, 2.0, 3.0]), "s": kg.asarray(np.eye(3))}
        for call in MORE.replace("\n", ";").split(";"):
            if call.strip():
                eval(call.strip(), here)


def test_an_array_names_its_methods() -> None:
    body = next(n for n in ast.parse(METHODS_STUB.read_text(encoding="utf-8")).body if isinstance(n, ast.ClassDef)).body
    names = {n.name for n in body if isinstance(n, ast.FunctionDef)}
    array = kg.asarray([[1.0, 2.0]])
    assert {"sum", "mean", "reshape", "__add__", "__rmatmul__"} <= names <= set(dir(array))
    assert all(hasattr(array, name) for name in dir(array) if not name.startswith("_"))


def marked(path: Path) -> set[tuple[str, int]]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return {(path.name, i) for i, line in enumerate(lines, 1) if line.endswith("# error")}


def test_mypy_finds_the_mistakes_and_nothing_else() -> None:
    mypy = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--hide-error-context"]
    command = [*mypy, *(str(path.relative_to(ROOT)) for path in CHECKED)]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    errors = [line.split(":", 3) for line in shown.stdout.splitlines() if ": error: " in line]
    assert not shown.stderr
    assert {(Path(file).name, int(line)) for file, line, *_ in errors} == marked(HERE / "mistakes.py"), shown.stdout


def test_pyright_finds_the_mistakes_and_nothing_else(tmp_path: Path) -> None:
    library("basedpyright")
    settings = {
        "include": [str(path) for path in CHECKED],
        "extraPaths": [str(ROOT / "src")],
        "typeCheckingMode": "standard",  # as pyright's own
        "pythonVersion": "3.11",
    }
    file = tmp_path / "pyrightconfig.json"
    file.write_text(json.dumps(settings), encoding="utf-8")
    command = [sys.executable, "-m", "basedpyright", "-p", str(file), "--pythonpath", sys.executable, "--outputjson"]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    told = json.loads(shown.stdout)
    errors = [d for d in told["generalDiagnostics"] if d["severity"] == "error"]
    found = {(Path(d["file"]).name, d["range"]["start"]["line"] + 1) for d in errors}
    assert told["summary"]["filesAnalyzed"] >= len(CHECKED)
    assert found == marked(HERE / "mistakes.py"), json.dumps(errors, indent=1)
