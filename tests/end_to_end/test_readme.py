"""The README's program prints what the README says, and the commands that it names exist."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
FENCES = re.findall(r"```(\w*)\n(.*?)```", README, re.DOTALL)


def test_program_prints_what_the_readme_says(tmp_path: Path) -> None:
    kinds = [kind for kind, _ in FENCES]
    program = FENCES[kinds.index("python")][1]
    printed = FENCES[kinds.index("text", kinds.index("python"))][1]
    path = tmp_path / "readme.py"
    path.write_text(program, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    shown = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, env=environment, timeout=120)
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout == printed


def test_commands_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = {
        word for kind, text in FENCES if kind == "sh" for word in re.findall(r"^make ([a-z-]+)", text, re.MULTILINE)
    }
    assert {"demo", "test"} <= named <= targets


def test_links_lead_somewhere() -> None:
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
