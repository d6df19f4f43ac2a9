"""What a release is made of: metadata, the page that an index shows, the source archive, workflows, the recipe for
conda-forge and the container's file."""

from __future__ import annotations

import hashlib
import importlib
import re
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import kernelgraph

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
URLS = PROJECT.get("urls", {})
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
RECIPE = ROOT / "packaging" / "conda" / "recipe.yaml"


def loaded(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def test_the_metadata_says_who_where_and_for_what() -> None:
    assert {"Homepage", "Documentation", "Repository", "Issues", "Changelog"} <= set(URLS)
    assert all(url.startswith(URLS["Repository"]) for url in URLS.values())  # one address, stated once
    assert PROJECT["authors"] and PROJECT["keywords"]
    cited = loaded(ROOT / "CITATION.cff")
    assert cited["authors"] == PROJECT["authors"] and cited["version"] == kernelgraph.__version__


def test_the_classifiers_are_those_that_the_index_knows() -> None:
    trove = pytest.importorskip("trove_classifiers")
    assert set(PROJECT["classifiers"]) <= trove.classifiers


def test_the_classifiers_name_the_pythons_that_are_tested() -> None:
    named = {c.rpartition(" ")[2] for c in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", c)}
    tested = loaded(ROOT / ".github" / "workflows" / "ci.yml")["jobs"]["test"]["strategy"]["matrix"]["python"]
    assert named == set(tested) and f">={min(tested)}" == PROJECT["requires-python"]


def test_the_command_is_a_function() -> None:
    module, _, name = PROJECT["scripts"]["kernelgraph"].partition(":")
    assert callable(getattr(importlib.import_module(module), name))


def test_each_cuda_has_an_extra() -> None:
    extras = PROJECT["optional-dependencies"]
    for version in ("12", "13"):
        text = " ".join(extras[f"cuda{version}"])
        assert f"numba-cuda[cu{version}]" in text and f"=={version}.*" in text
    assert extras["cuda"] == ["kernelgraph[cuda13]"]


def test_the_index_shows_links_that_lead_somewhere() -> None:
    """The README's links are relative in the repository; what is uploaded has the repository's address in them."""
    pytest.importorskip("setuptools", minversion="77")
    text = subprocess.run(
        [sys.executable, "setup.py", "--long-description"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert len(links) > 10 and [link for link in links if not link.startswith(("https://", "#"))] == []
    pictures = re.findall(r"!\[[^]]*\]\(([^)]+)\)", text)
    assert pictures and all("/raw/" in picture for picture in pictures)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned(path: Path) -> None:
    """A tag can be moved; a commit cannot."""
    used = re.findall(r"uses: (\S+)", path.read_text(encoding="utf-8"))
    assert used and all(re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", name) for name in used)
    assert loaded(path)["permissions"] == {"contents": "read"}
    assert all("timeout-minutes" in job for job in loaded(path)["jobs"].values())


def test_systems_that_the_wheel_installs_on_are_tested() -> None:
    jobs = loaded(ROOT / ".github" / "workflows" / "ci.yml")["jobs"]
    systems = " ".join(name for job in jobs.values() for name in job["strategy"]["matrix"]["system"])
    assert all(re.search(word, systems) for word in (r"ubuntu-[\d.]+(?!-arm)", r"-arm\b", "macos-", "windows-"))


def test_a_tag_is_published_by_a_trusted_publisher() -> None:
    release = loaded(ROOT / ".github" / "workflows" / "release.yml")
    assert release[True]["push"]["tags"] == ["v*"]  # YAML reads `on` as true
    publish = release["jobs"]["publish"]
    assert publish["needs"] == "build" and publish["environment"] and publish["permissions"] == {"id-token": "write"}
    text = (ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")
    assert "password:" not in text and "secrets." not in text and "twine check --strict" in text


def test_the_recipe_is_as_its_linter_wants_it() -> None:
    """What conda-forge's linter refuses in a recipe of a pure Python package."""
    recipe = loaded(RECIPE)
    order = ["schema_version", "context", "package", "source", "build", "requirements", "tests", "about", "extra"]
    assert list(recipe) == order
    assert recipe["source"]["url"].startswith("https://pypi.org/packages/source/") and "sha256" in recipe["source"]
    assert recipe["build"]["noarch"] == "python" and recipe["build"]["number"] == 0
    assert f">={recipe['context']['python_min']}" == PROJECT["requires-python"]
    assert "python ${{ python_min }}.*" in recipe["requirements"]["host"]
    assert "python >=${{ python_min }}" in recipe["requirements"]["run"]
    assert recipe["tests"][0]["python"]["python_version"] == "${{ python_min }}.*"
    about = recipe["about"]
    assert {"homepage", "repository", "documentation", "summary", "license", "license_file"} <= set(about)
    assert about["repository"] == URLS["Repository"] and about["homepage"] == URLS["Homepage"]
    assert recipe["extra"]["recipe-maintainers"]


def test_a_release_fills_in_the_recipe(tmp_path: Path) -> None:
    archive = tmp_path / "kernelgraph-9.8.7.tar.gz"
    archive.write_bytes(b"archive")
    shown = subprocess.run(
        [sys.executable, str(RECIPE.parent / "release_recipe.py"), str(archive)],
        capture_output=True,
        text=True,
        check=True,
    )
    made = yaml.safe_load(shown.stdout)
    assert made["context"]["version"] == "9.8.7"
    assert made["source"]["sha256"] == hashlib.sha256(b"archive").hexdigest()


def test_the_source_archive_is_whole(tmp_path: Path) -> None:
    """Everything that git tracks is in it, but for what serves the repository alone."""
    pytest.importorskip("build")
    pytest.importorskip("setuptools", minversion="77")
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if tracked.returncode:
        pytest.skip("no checkout")
    command = [sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", str(tmp_path), "."]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with tarfile.open(next(tmp_path.glob("*.tar.gz"))) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    links = {f"src/kernelgraph/{layer}" for layer in ("dsl", "compiler", "runtime")}
    missing = set(tracked.stdout.splitlines()) - inside - links
    assert not {name for name in missing if (ROOT / name).exists() and not re.match(r"\.git[^/]+$", name)}


def test_the_container_copies_what_is_there() -> None:
    text = (ROOT / "packaging" / "docker" / "Dockerfile").read_text(encoding="utf-8")
    for line in re.findall(r"^COPY (?!--from)(.*)$", text, re.MULTILINE):
        for name in line.split()[:-1]:
            assert (ROOT / name).exists(), name
    assert "KERNELGRAPH_CACHE_DIR=" in text and "USER " in text
    for name in re.findall(r"python (examples/\S+\.py)", text):
        assert (ROOT / name).is_file(), name


def test_the_recipe_is_rendered() -> None:
    rattler = pytest.importorskip("rattler_build")
    recipe = rattler.Stage0Recipe.from_yaml(RECIPE.read_text(encoding="utf-8"))
    assert len(recipe.render(rattler.VariantConfig())) == 1
