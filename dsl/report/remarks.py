"""A report's data in; out, the few sentences that say where to look first, each with a number and what it is about."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...runtime.core.readable_text import byte_count_in_words
from .text import duration_as_text, text_shortened_for_report

MOST = 5
TINY = 20.0  # microseconds, below which launching is what takes the time
JsonObject = dict[str, Any]  # a report's data, or a part of it, as JSON has them
Remark = tuple[float, str, list[int]]  # how much it matters, the sentence, the tasks that it is about


def remarks_about_report(data: JsonObject) -> list[JsonObject]:
    """At most five, what matters most first: `text`, and the `tasks` to look at."""
    tasks = [task for task in data["tasks"] if "parent" not in task]
    found: list[Remark] = []
    if tasks:
        for rule in RULES:
            found += rule(data, tasks)
    kept: list[Remark] = []
    for remark in sorted(found, key=lambda remark: -remark[0]):
        if not remark[2] or remark[2] not in [other[2] for other in kept]:  # one about the same tasks is enough
            kept.append(remark)
    return [{"text": text, "tasks": about} for _, text, about in kept[:MOST]]


def reported_task_microseconds(task: JsonObject) -> float:
    """Microseconds as measured, else as predicted."""
    return float(task["cost"] if task["measured"] is None else task["measured"])


def _user_line_for_remark(data: JsonObject, path: int) -> str:
    file, line, *_ = data["paths"][path][-1]
    return f"{data['files'][file]['name'].rpartition('/')[2]}:{line}"


def _remark_on_heaviest_task(data: JsonObject, tasks: list[JsonObject]) -> Iterator[Remark]:
    """One task takes most of the time."""
    total = sum(map(reported_task_microseconds, tasks))
    top = max(range(len(tasks)), key=lambda i: reported_task_microseconds(tasks[i]))
    share = reported_task_microseconds(tasks[top]) / total if total else 0.0
    if len(tasks) > 2 and share > 0.3:
        where = f" ({_user_line_for_remark(data, tasks[top]['paths'][0])})" if tasks[top]["paths"] else ""
        took = duration_as_text(reported_task_microseconds(tasks[top]))
        yield (
            share,
            f"t{top}{where} takes {share:.0%} of all tasks' time, {took}",
            [top],
        )


def _remark_on_line_of_many_tasks(data: JsonObject, tasks: list[JsonObject]) -> Iterator[Remark]:
    """One line becomes many small kernels."""
    total = sum(map(reported_task_microseconds, tasks))
    lines: dict[tuple[int, int], set[int]] = {}
    for number, task in enumerate(tasks):
        inner = {tuple(data["paths"][path][-1][:2]) for path in task["paths"]}
        if len(inner) == 1:  # nothing else is in it
            lines.setdefault(inner.pop(), set()).add(number)
    for (file, line), about in lines.items():
        if len(about) >= 8 and 0.2 * len(tasks) < len(about) < len(tasks):  # all of them would say nothing
            share = sum(reported_task_microseconds(tasks[i]) for i in about) / total if total else 0.0
            name = data["files"][file]["name"].rpartition("/")[2]
            yield (
                0.2 + len(about) / len(tasks) / 2,
                f"{len(about)} of {len(tasks)} tasks come from {name}:{line} alone and take {share:.0%} of the time",
                sorted(about),
            )


def _remarks_on_wrong_predictions(data: JsonObject, tasks: list[JsonObject]) -> Iterator[Remark]:
    """Tasks that matter take far longer, or less, than predicted."""
    known = [i for i, task in enumerate(tasks) if task["measured"] is not None and task["cost"] > 0]
    total = sum(reported_task_microseconds(tasks[i]) for i in known)
    heavy = [
        i
        for i in sorted(known, key=lambda i: -reported_task_microseconds(tasks[i]))
        if reported_task_microseconds(tasks[i]) > max(0.04 * total, TINY)
    ]
    ratio = {i: reported_task_microseconds(tasks[i]) / tasks[i]["cost"] for i in heavy}
    slow, fast = [i for i in heavy if ratio[i] > 3], [i for i in heavy if ratio[i] < 1 / 3]
    if slow and len(data["runs"]) == 1:
        yield 0.5, "the one call that was measured also loaded its kernels; call the function more often", slow
        return
    for about, words in ((slow, "times as long as predicted"), (fast, "times less than predicted")):
        if about:
            most = max(max(ratio[i], 1 / ratio[i]) for i in about)
            names = ", ".join(f"t{i}" for i in about[:4]) + (", ..." if len(about) > 4 else "")
            share = sum(reported_task_microseconds(tasks[i]) for i in about) / total
            yield 0.5 * share, f"{names} took up to {most:.1f} {words}, {share:.0%} of the time in all", about


def _remark_on_idle_streams(data: JsonObject, tasks: list[JsonObject]) -> Iterator[Remark]:
    """Streams that mostly wait: what runs side by side is little."""
    end = max(task["end"] for task in tasks)
    streams = data["plan"]["streams"]
    if streams > 1 and end:
        busy = sum(task["end"] - task["start"] for task in tasks)
        if busy / end < 1.2:
            yield (
                0.15,
                f"{streams} streams, but little runs side by side: {busy / end:.2f} tasks at a time",
                [],
            )


def _remarks_on_blocked_fusion(data: JsonObject, tasks: list[JsonObject]) -> Iterator[Remark]:
    """A limit, not the data, keeps kernels apart."""
    words = {
        "long rows": "a reduction is not fused with what follows it",
        "stores": "kernels are kept apart by how many arrays one may store",
        "loads": "kernels are kept apart by how many arrays one may load",
        "nodes": "kernels are kept apart by how many nodes one may compute",
    }
    for rule, text in words.items():
        cuts = [cut for cut in data["cuts"] if cut["rule"] == rule]
        if cuts:
            about = sorted({t for cut in cuts for t in (cut["from"], cut["to"]) if t is not None})
            times = f", {len(cuts)} times" if len(cuts) > 1 else ""
            yield 0.2 + 0.02 * len(cuts), f"{text}{times}: {cuts[0]['text']}", about


def _remarks_on_promotion_to_wide_dtypes(data: JsonObject, tasks: list[JsonObject]) -> Iterator[Remark]:
    """float64 where all arrays that came in are narrower."""
    given = " ".join(argument["type"] for argument in data["arguments"])
    drawn = next((p for p in data["passes"] if "types" in p), None)
    if drawn is None or "float64" in given or "complex128" in given or "[" not in given or "float" not in given:
        return
    for i, kind in enumerate(drawn["types"]):
        if kind.startswith("float64[") and not kind.startswith("float64[]") and drawn["paths"][i]:
            at = _user_line_for_remark(data, drawn["paths"][i][0])
            yield 0.6, f"{at} computes in float64 ({kind}), though the arguments are narrower: twice the bytes", []
            return


def _remark_on_arena_above_bound(data: JsonObject, tasks: list[JsonObject]) -> Iterator[Remark]:
    memory = data["memory"]
    if memory["bound"] and memory["arena"] > 1.05 * memory["bound"]:
        ratio = memory["arena"] / memory["bound"] - 1
        yield 0.2, f"the arena is {ratio:.0%} above the least possible, {byte_count_in_words(memory['bound'])}", []


def _remarks_on_tasks_far_from_limit(data: JsonObject, tasks: list[JsonObject]) -> Iterator[Remark]:
    """A kernel that matters is far from what memory and arithmetic allow."""
    total = sum(map(reported_task_microseconds, tasks))
    for i in sorted(range(len(tasks)), key=lambda i: -reported_task_microseconds(tasks[i]))[:5]:
        task = tasks[i]
        if (
            task["kind"] != "kernel"
            or task["measured"] is None
            or reported_task_microseconds(task) < 0.1 * total
            or reported_task_microseconds(task) < TINY
        ):
            continue
        least = max(task["bytes"] / data["device"]["bandwidth"], task["flops"] / data["device"]["flops"])
        if least < 0.15 * reported_task_microseconds(task):
            share = least / reported_task_microseconds(task)
            name = text_shortened_for_report(task["label"], 40)
            yield (
                0.4 * reported_task_microseconds(task) / total,
                f"t{i} ({name}) runs at {share:.0%} of what the device allows",
                [i],
            )


RULES = (
    _remark_on_heaviest_task,
    _remark_on_line_of_many_tasks,
    _remarks_on_wrong_predictions,
    _remark_on_idle_streams,
    _remarks_on_blocked_fusion,
    _remarks_on_promotion_to_wide_dtypes,
    _remark_on_arena_above_bound,
    _remarks_on_tasks_far_from_limit,
)
