"""The repository as a package: links, the list of packages, what an import costs, and which layer may import which."""

from __future__ import annotations

import ast
import importlib.metadata
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import kernelgraph

ROOT = Path(__file__).parent.parent
LAYERS = ("runtime", "compiler", "dsl")  # each may import itself and what stands before it
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
SOURCES = sorted(path for layer in LAYERS for path in (ROOT / layer).rglob("*.py"))


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(("kernelgraph", *parts)).removesuffix(".__init__")


def imported(path: Path) -> list[str]:
    """The absolute names of the modules that a file imports, at any depth; relative ones resolved."""
    package = module_name(path).split(".")
    if path.name != "__init__.py":
        package = package[:-1]
    names = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            stem = ".".join(base + (node.module.split(".") if node.module else []))
            names += [f"{stem}.{alias.name}" for alias in node.names]
    return names


def test_the_links_lead_to_the_layers() -> None:
    for layer in LAYERS:
        assert (ROOT / "src" / "kernelgraph" / layer).resolve() == ROOT / layer


def test_every_package_is_listed() -> None:
    found = {module_name(path) for path in SOURCES if path.name == "__init__.py"}
    assert set(PROJECT["tool"]["setuptools"]["packages"]) == found | {"kernelgraph"}


def test_what_is_installed_is_what_is_here() -> None:
    """Every module of the checkout is in the package that the tests import (a wheel, in `make wheel-test`)."""
    home = Path(kernelgraph.__file__).parent
    expected = os.environ.get("KERNELGRAPH_EXPECT_INSTALLED")
    if expected:
        assert home.is_relative_to(Path(expected).resolve()), f"tested {home}, not the wheel in {expected}"
    assets = [ROOT / "dsl" / "report" / f"page.{kind}" for kind in ("html", "css", "js")]
    stubs = [ROOT / "src" / "kernelgraph" / name for name in ("py.typed", "__init__.pyi")]
    for path in [*SOURCES, *assets, *stubs, ROOT / "dsl" / "array" / "methods.pyi"]:
        base = ROOT / "src" / "kernelgraph" if path in stubs else ROOT
        assert (home / path.relative_to(base)).is_file(), path


def test_the_recipe_for_conda_asks_for_what_pip_does() -> None:
    recipe: Any = yaml.safe_load((ROOT / "packaging" / "conda" / "recipe.yaml").read_text(encoding="utf-8"))
    project = PROJECT["project"]
    assert recipe["package"]["name"] == project["name"] and recipe["about"]["license"] == project["license"]
    assert recipe["context"]["version"] == kernelgraph.__version__
    run = [line.replace(" ", "") for line in recipe["requirements"]["run"]]
    assert run == ["python>=${{python_min}}", *project["dependencies"]]
    assert PROJECT["build-system"]["requires"][0] in [line.replace(" ", "") for line in recipe["requirements"]["host"]]


def test_no_text_recommends_an_install_that_does_not_exist() -> None:
    """The package is on no index."""
    pages = [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "examples").glob("*.py"),
    ]
    wrong = re.compile(r"(pip|conda|mamba|uv) (add|install)( -\S+)* ['\"]?kernelgraph")
    assert [
        path.name
        for path in [*pages, *SOURCES, ROOT / "src/kernelgraph/run.py"]
        if wrong.search(path.read_text(encoding="utf-8"))
    ] == []


def test_the_version_is_that_of_what_is_installed() -> None:
    try:
        installed = importlib.metadata.version("kernelgraph")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("not installed: the tests run from the checkout")
    assert kernelgraph.__version__ == installed


def test_import_is_light() -> None:
    """Only NumPy and ml_dtypes come with `import kernelgraph`; numba, llvmlite and CUDA load at first use."""
    code = "import sys; import kernelgraph; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    heavy = {"numba", "llvmlite", "numba_cuda", "cuda", "nvmath", "torch", "jax", "scipy", "matplotlib", "mpi4py"}
    assert not heavy & set(shown.stdout.split())


def test_a_call_makes_no_namespace() -> None:
    """A function that calls NumPy alone needs none of the functions of `kg`."""
    code = """
import sys, numpy as np, kernelgraph as kg
kg.kernel_graph(lambda x: np.exp(x) + x.sum(), device="cpu")(np.ones(9))
assert "kernelgraph.dsl.functions.tables" in sys.modules and "kernelgraph.dsl.api.namespace" not in sys.modules
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)


def test_a_warm_start_imports_little(tmp_path: Path) -> None:
    """What is for errors, for compiling and for people to look at is imported when it is needed."""
    code = """
import sys, numpy as np
before = set(sys.modules)
import kernelgraph as kg
np.asarray(kg.kernel_graph(lambda x: np.exp(x) + x.sum(), device="cpu")(np.ones(9)))
looking = ["kernelgraph.dsl.inspection", "kernelgraph.dsl.report", "kernelgraph.runtime.schedule.timeline"]
print(*[name for name in sys.modules if name.startswith(tuple(looking))])
late = {"copy", "dataclasses", "difflib", "json", "pathlib", "signal", "string", "subprocess"}
late |= {"llvmlite.binding", "numba", "numpy.random", "numpy.typing"}
print(*sorted(late & set(sys.modules) - before))
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "KERNELGRAPH_CACHE_DIR": str(tmp_path)}
    for _ in range(2):  # the first one compiles
        shown = subprocess.run([sys.executable, "-c", code], check=True, env=environment, capture_output=True)
    assert not shown.stdout.split()


@pytest.mark.parametrize("names", ["kernel_graph", "asarray", "exp", "errors", "Array KernelGraph TraceError nn"])
def test_names_load_what_they_need(names: str) -> None:
    """`import kernelgraph` loads no part of it; whichever name comes first, everything then works."""
    code = f"""
import sys, kernelgraph as kg
assert not any(name.startswith("kernelgraph.") for name in sys.modules)
for name in {names.split()}:
    getattr(kg, name, None)
import numpy as np
x = kg.asarray(np.ones(3), device="cpu")
assert float((x + 1).sum()) == 6 and isinstance(-x, kg.Array) and isinstance(np.cov(x), kg.Array)
f = kg.kernel_graph(lambda x: np.cov(x) + kg.sum(x) + np.linalg.norm(np.zeros(2) + x[0]), device="cpu")
f(x)
assert set(kg.__all__) <= set(dir(kg)) and "exp" in dir(kg)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert shown.returncode == 0, shown.stderr


@pytest.mark.parametrize("path", SOURCES, ids=module_name)
def test_imports_point_down(path: Path) -> None:
    layer = path.relative_to(ROOT).parts[0]
    above = LAYERS[LAYERS.index(layer) + 1 :]
    for name in imported(path):
        parts = name.split(".")
        if parts[0] == "kernelgraph":
            assert len(parts) < 2 or parts[1] not in above, f"{layer}/ may not import {name}"
        assert parts[0] not in LAYERS, f"{name}: relative imports, please"
        assert layer != "compiler" or parts[0] not in {"numba", "llvmlite", "cuda", "nvmath"}, (
            f"compiler/ imports {name}"
        )


@pytest.mark.parametrize("path", SOURCES, ids=module_name)
def test_imports_inside_the_package_are_relative(path: Path) -> None:
    """An absolute import shows each file to type checkers under two names."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and not node.level:
            modules = [node.module or ""]
        assert not any(module.startswith("kernelgraph.") for module in modules)


def test_examples_are_short() -> None:
    examples = sorted((ROOT / "examples").glob("[0-9]*.py"))
    assert examples
    for path in examples:
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 64, path.name
