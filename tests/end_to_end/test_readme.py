"""What the pages show is what the programs print, and the commands, settings and errors that they name exist.

`--update-golden` writes the printed text anew.
"""

from __future__ import annotations

import builtins
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import kernelgraph as kg
from kernelgraph.dsl.array.devices import open_device
from kernelgraph.dsl.jit.options import KernelGraphKeywords
from kernelgraph.runtime.core.settings import TABLE
from kernelgraph.runtime.interpret.numpy_calls import HOST

ROOT = Path(__file__).parent.parent.parent
FENCE = re.compile(r"```(\w*)\n(.*?)```", re.DOTALL)
FLAGS = re.MULTILINE | re.DOTALL
MEMORY_NOW = re.compile(r" \(\d+ bytes more than .*\)$")  # depends on what else lives in the process


def read(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def printed(programs: list[str], folder: Path) -> list[str]:
    """What each of a page's programs prints, run one after the other as one file."""
    path = folder / "page.py"
    path.write_text("\nprint('\\f')\n".join(programs), encoding="utf-8")
    # The pages show the CPU; without this, a machine with a GPU would use it.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "CUDA_VISIBLE_DEVICES": ""}
    shown = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, env=environment, timeout=300)
    assert shown.returncode == 0, shown.stderr
    return shown.stdout.split("\f\n")


DOCS = sorted(path.name for path in (ROOT / "docs").glob("*.md"))
PAGES = ["README.md", *(f"docs/{name}" for name in DOCS if "```python" in read(f"docs/{name}"))]


@pytest.mark.parametrize("page", PAGES)
def test_programs_print_what_the_page_says(page: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    text = read(page)
    programs = [body for kind, body in FENCE.findall(text) if kind == "python"]
    for library in set(re.findall(r"^import (pandas|xarray|polars)", text, re.MULTILINE)):
        pytest.importorskip(library)
    outputs = [output for output in printed(programs, tmp_path) if output]
    if request.config.getoption("--update-golden", default=False):
        remaining = iter(outputs)
        new = FENCE.sub(lambda m: f"```text\n{next(remaining)}```" if m[1] == "text" else m[0], text)
        (ROOT / page).write_text(new, encoding="utf-8")
        text = new
    assert [body for kind, body in FENCE.findall(text) if kind == "text"] == outputs


def test_commands_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", read("Makefile"), re.MULTILINE))
    commands = [body for kind, body in FENCE.findall(read("README.md")) if kind == "sh"]
    named = set(re.findall(r"make ([a-z-]+)", "\n".join(commands) + read("CONTRIBUTING.md")))
    assert {"demo", "test"} <= named <= targets


def test_links_lead_somewhere() -> None:
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]:
        for target, part in re.findall(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", page.read_text(encoding="utf-8")):
            there = page.parent / target if target else page
            assert there.exists(), f"{page.name}: {target}"
            if part:
                headings = re.findall(r"^#+ (.*)$", there.read_text(encoding="utf-8"), re.MULTILINE)
                assert part in [re.sub(r"[^\w -]", "", h).lower().replace(" ", "-") for h in headings], (
                    f"{target}#{part}"
                )


def test_the_index_lists_every_page() -> None:
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {"index.md"}
    assert pages == set(re.findall(r"\]\(([\w-]+\.md)\)", read("docs/index.md")))


def test_the_gallery_shows_every_example() -> None:
    examples = {path.name for path in (ROOT / "examples").glob("*.py")}
    assert set(re.findall(r"\]\(\.\./examples/(\w+\.py)\)", read("docs/gallery.md"))) == examples
    pages = {name.replace("demo", "report").replace(".py", ".html") for name in examples}
    assert set(re.findall(r'href="(\w+\.html)"', read("docs/gallery.md"))) == pages


def test_every_setting_is_documented() -> None:
    rows = set(re.findall(r"^\| `KERNELGRAPH_(\w+)`", read("docs/caching.md"), re.MULTILINE))
    assert rows == {row.name.upper() for row in TABLE}


def test_every_option_is_documented() -> None:
    options = [*KernelGraphKeywords.__annotations__]
    table = read("docs/language.md").split("## Options")[1].split("\n## ")[0]
    assert re.findall(r"^\| `(\w+)`", table, re.MULTILINE) == options


def test_operations_run_as_the_page_says() -> None:
    """What NumPy does on the host has a row in the table of host calls, and a kernel has none."""
    page = read("docs/operations.md")
    kernels, library, host, _ = re.split(r"^## .*$", page, flags=re.MULTILINE)[1:]
    calls = {name.rpartition(".")[2] for name in HOST}
    # a kernel, or a host call for arguments of another kind; made of a host call
    either = {
        "prod",
        "min",
        "max",
        "reduce",
        "searchsorted",
        "histogram",
        "convolve",
        "correlate",
        "isin",
        "attention",
    }
    composed = {"unwrap", "histogram2d", "nancumsum", "nancumprod"}
    words = r"`(?:linalg\.|kg\.nn\.|kg\.)?([a-z]\w+)`"
    assert not (set(re.findall(words, kernels + library)) - either) & calls
    assert set(re.findall(words, host)) - composed - either - {"linalg", "fft", "logaddexp", "minlength"} <= calls
    missing = (
        calls
        - set(re.findall(words, page))
        - {"setitem", "ufunc_reduce", "view", "last_places", "combine_at", "places_in_order", "combine_in_order", "kth"}
        - {"require", "call"}  # what a reduction of a selection asks, and one with keywords that have no rule
        - {"convolution", "convolution_image", "convolution_weights"}  # what kg.nn's are made of
        - {"shifted_products", "shifted_dots", "attention_gradient", "dnn"}
        - {"lu", "qr_factors", "qr_upper", "cholesky_factor", "eigh_rows", "svd_whole"}
    )
    assert not missing, f"docs/operations.md does not name {missing}"
    for name in set(re.findall(words, kernels + library)) - {"astype", "reduce", "axis", "keepdims", "dtype", "ddof"}:
        assert any(hasattr(home, name) for home in (np, kg, kg.nn, kg.random, np.linalg)), name


def public_errors() -> list[str]:
    public = [name for name in kg.__all__ if isinstance(getattr(kg, name), type)]
    return sorted({n for n in public if issubclass(getattr(kg, n), Exception)} - {"KernelGraphError", "UserError"})


def test_every_error_is_documented() -> None:
    """A row in the table and a page of its own, and no row or page for anything else."""
    rows = re.findall(r"^\| \[`(\w+)`\]\(errors/(\w+)\.md\)", read("docs/errors.md"), re.MULTILINE)
    assert sorted(name for name, _ in rows) == sorted(page for _, page in rows) == public_errors()
    assert sorted(path.stem for path in (ROOT / "docs" / "errors").glob("*.md")) == public_errors()


def test_every_error_is_what_else_its_page_says() -> None:
    kinds = {**vars(builtins), **vars(kg), "AxisError": np.exceptions.AxisError}
    for name in public_errors():
        for other in re.findall(r"Also an? (.*?)\.$", read(f"docs/errors/{name}.md"), re.MULTILINE | re.DOTALL):
            for base in re.findall(r"`(?:numpy\.exceptions\.)?(\w+)`", other):
                assert issubclass(getattr(kg, name), kinds[base]), f"{name} is no {base}"


@pytest.mark.parametrize("name", public_errors())
def test_the_wrong_program_raises_and_the_right_one_runs(name: str, request: pytest.FixtureRequest) -> None:
    text = read(f"docs/errors/{name}.md")
    if name == "OutOfMemory":  # depends on what the process holds; test_tuning raises it
        return
    assert re.search("^Wrong", text, re.MULTILINE) and re.search("^Right", text, re.MULTILINE)
    for wrong, message in re.findall(r"^Wrong:\n\n```python\n(.*?)```\n\n```text\n(.*?)```", text, FLAGS):
        open_device(("cpu", 0)).trim()  # what other tests left cached is not free memory
        with pytest.raises(getattr(kg, name)) as caught:
            run(wrong)
        said = MEMORY_NOW.sub("", str(caught.value)) + "\n"
        if request.config.getoption("--update-golden", default=False):
            text = text.replace(f"```text\n{message}```", f"```text\n{said}```")
            (ROOT / f"docs/errors/{name}.md").write_text(text, encoding="utf-8")
        else:
            assert said == message
    for right in re.findall(r"^Right:\n\n```python\n(.*?)```", text, FLAGS):
        run(right)


def run(program: str) -> None:
    """A program of an error's page, which needs nothing but itself."""
    exec(compile(program, "page.py", "exec"), {"__name__": "__main__"})
