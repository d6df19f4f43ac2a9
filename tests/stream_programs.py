"""The page and the pictures of the programs in `examples/streams`, from these themselves.

python -m tests.stream_programs    # writes docs/stream-programs.md and docs/pictures/streams/*.svg anew
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

from kernelgraph.dsl.report.svg import TaskBar, schedule_svg
from kernelgraph.runtime.program.plan import Plan
from kernelgraph.runtime.schedule.cost_model import machine_model_of_device
from kernelgraph.runtime.schedule.timeline import predict_timeline

ROOT = Path(__file__).parent.parent
PROGRAMS = sorted((ROOT / "examples" / "streams").glob("s[0-9]*.py"))
PAGE = ROOT / "docs" / "stream-programs.md"
PICTURES = ROOT / "docs" / "pictures" / "streams"

HEAD = """# Programs with streams

Fourteen programs, each as it is written elsewhere, with streams, events and waits, and as it is written here. Ours are
files of [`examples/streams`](../examples/streams) that run by themselves, on a CPU or a GPU; the tests compare their
values with NumPy's. Elsewhere the program chooses the streams; here a plan does, and waits only where one result needs
another. Below each program is what one plan has, that of `plan()` in its file, and what it is predicted to do on a GPU.
Where a program is several calls, `plan()` is of a function that stands for them.
"""


def load_program(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def picture_of_plan(plan: Plan) -> str:
    times = predict_timeline(plan, machine_model_of_device(plan.program.target))
    return schedule_svg([TaskBar(plan.tasks[t.task].name, t.stream, t.start, t.end) for t in times]) + "\n"


def section_of_program(number: int, path: Path, plan: Plan) -> str:
    """A heading, the words of the other library, ours, what the plan has, and its picture."""
    text = path.read_text(encoding="utf-8")
    docstring = text.split('"""')[1]
    title, _, original = docstring.strip().partition("\n")
    ours = re.search(r"^# ours:? ?(.*?)\n(.*?)(?=^# checked|^def plan\()", text, re.MULTILINE | re.DOTALL)
    assert ours is not None, path.name
    remark = f"{ours[1][0].upper()}{ours[1][1:]}.\n\n" if ours[1] else ""
    original = re.sub(
        r"^(\w+):\n\n((?:    .*\n|\n)+)", _fenced_original, original.strip("\n") + "\n", flags=re.MULTILINE
    )
    tasks, streams, waits = map(_counted, (len(plan.tasks), plan.streams, plan.waits), ("task", "stream", "wait"))
    name = path.stem.partition("_")[2].replace("_", "-")
    return (
        f"## {number}. {title.rstrip('.')}\n\n{original.strip()}\n\nkernelgraph"
        f" ([the whole program](../examples/streams/{path.name})):\n\n{remark}```py\n{ours[2].strip()}\n```\n\n"
        f"`plan()`: {tasks} on {streams}, {waits}.\n\n![the predicted timeline](pictures/streams/{name}.svg)\n"
    )


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _fenced_original(match: re.Match[str]) -> str:
    lines = [line.removeprefix("    ") for line in match[2].rstrip().splitlines()]
    return f"{match[1]}:\n\n```py\n" + "\n".join(lines) + "\n```\n\n"


def page_and_pictures() -> tuple[str, dict[str, str]]:
    sections, pictures = [], {}
    for number, path in enumerate(PROGRAMS, 1):
        plan = load_program(path).plan()
        sections.append(section_of_program(number, path, plan))
        pictures[path.stem.partition("_")[2].replace("_", "-") + ".svg"] = picture_of_plan(plan)
    return HEAD + "\n" + "\n".join(sections), pictures


if __name__ == "__main__":
    page, pictures = page_and_pictures()
    PAGE.write_text(page, encoding="utf-8")
    PICTURES.mkdir(exist_ok=True)
    for name, svg in pictures.items():
        (PICTURES / name).write_text(svg, encoding="utf-8")
