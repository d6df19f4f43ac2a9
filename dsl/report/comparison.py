"""`kg.compare`: two reports in; what differs between them out, as data, as a few lines of text and as a page."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ...runtime.core.readable_text import byte_count_in_words
from .page import html_page_of_reports
from .remarks import JsonObject, reported_task_microseconds
from .report import Report
from .svg import html_details_element
from .text import duration_as_text, text_shortened_for_report

SHOWN = 10  # lines of the user's that the text names


class Comparison:
    """What `kg.compare(a, b)` gives. `data` is numbers, texts, lists and dicts alone: `facts` of both reports, `lines`
    of the user's text and `tasks` of both, each with its numbers in either, and `cuts` by rule.

    Examples
    --------
    >>> report = kg.kernel_graph(lambda x: x + 1).report(kg.spec((9,), "f4"))
    >>> kg.compare(report, report).data["basis"]
    'predicted'
    """

    def __init__(self, first: Report, second: Report) -> None:
        self.reports = first, second
        self.data = compared_report_data(first.data, second.data)

    def page(self) -> str:
        """One HTML file that needs nothing else, with both reports in it, as text."""
        return html_page_of_reports([*(report.data for report in self.reports), self.data])

    def save(self, path: Any) -> None:
        """Write the page, or, where the name ends in `.json`, the data."""
        json_asked = str(path).endswith(".json")
        Path(path).write_text(json.dumps(self.data, allow_nan=False) if json_asked else self.page(), encoding="utf-8")

    def __str__(self) -> str:
        data = self.data
        rows = [["", *data["names"]], *([name, str(a), str(b)] for name, a, b in data["facts"] if a != b)]
        moved = [row for row in data["lines"] if row["times"][0] != row["times"][1]][:SHOWN]
        for row in moved:
            rows.append(
                [f"{row['where']}  {text_shortened_for_report(row['text'], 50)}", *map(_duration_or_dash, row["times"])]
            )
        widths = [max(len(row[k]) for row in rows) for k in range(3)]
        lines = ["  ".join([row[0].ljust(widths[0]), *(row[k].rjust(widths[k]) for k in (1, 2))]) for row in rows]
        return "\n".join([f"{data['function']['name']}; times are {data['basis']}", *lines])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return html_details_element("comparison", str(self))


def compare(first: Report | str | Path, second: Report | str | Path, path: Any = None) -> Comparison:
    """Two reports side by side. They are of two plans, two devices, two versions of a function, or today and last week.

    Each is a report or the name of a `.json` file that one was saved to. What belongs together is found by the text of
    the user's line, so lines may have moved.

    Parameters
    ----------
    first : Report or str or Path
        The one to compare.
    second : Report or str or Path
        The one that it is compared with.
    path : optional
        Where a page goes.

    Returns
    -------
    Comparison

    Raises
    ------
    TypeError
        For what is no report.
    OSError
        For a file that is not there.

    Examples
    --------
    >>> f = kg.kernel_graph(lambda x: x + 1)
    >>> one, two = f.report(kg.spec((9,), "f4")), f.report(kg.spec((99,), "f4"))
    >>> [name for name, a, b in kg.compare(one, two).data["facts"] if a != b]
    ['arguments', 'predicted']
    """
    found = Comparison(_loaded_report_to_compare(first), _loaded_report_to_compare(second))
    if path is not None:
        found.save(path)
    return found


def _loaded_report_to_compare(given: Report | str | Path) -> Report:
    if not isinstance(given, (Report, str, Path)):
        raise TypeError(f"kg.compare takes reports, or names of the .json files that they were saved to, not {given!r}")
    return given if isinstance(given, Report) else Report(json.loads(Path(given).read_text(encoding="utf-8")))


def compared_report_data(first: JsonObject, second: JsonObject) -> JsonObject:
    """The facts, the lines and the tasks of two reports' data, joined; what differs most comes first."""
    both = first, second
    measured = all("measured" in data for data in both)
    time: Callable[[JsonObject], float] = reported_task_microseconds if measured else lambda task: float(task["cost"])
    names = [data["function"]["name"] for data in both]
    return {
        "comparison": True,
        "function": {"name": " and ".join(dict.fromkeys(names))},
        "names": [f"{data['function']['name']} on {data['device']['name']}" for data in both],
        "basis": "measured" if measured else "predicted",
        "facts": [[name, *values] for name, *values in zip(FACTS, *map(_facts_of_report, both), strict=True)],
        "lines": _join_two_reports(
            *({key: row for key, row in _compared_lines_of_report(data, time)} for data in both)
        ),
        "tasks": _join_two_reports(
            *({key: row for key, row in _compared_tasks_of_report(data, time)} for data in both)
        ),
        "cuts": _fusion_cuts(both),
    }


FACTS = ("device", "arguments", "nodes", "tasks", "streams", "waits", "predicted", "measured", "arena", "least arena")


def _facts_of_report(data: JsonObject) -> tuple[Any, ...]:
    plan, memory = data["plan"], data["memory"]
    arguments = ", ".join(f"{a['name']} {a['type']}" for a in data["arguments"])
    tasks = sum("parent" not in task for task in data["tasks"])
    measured = duration_as_text(data["measured"]) if "measured" in data else "-"
    times = (
        duration_as_text(data["predicted"]),
        measured,
        byte_count_in_words(memory["arena"]),
        byte_count_in_words(memory["bound"]),
    )
    return data["device"]["name"], arguments, data["nodes"], tasks, plan["streams"], plan["waits"], *times


Row = tuple[tuple[str, str, int], JsonObject]  # what it is joined by, and its numbers


def _compared_lines_of_report(data: JsonObject, time: Callable[[JsonObject], float]) -> Iterator[Row]:
    """The innermost lines that tasks come from; of a task of several each has its share of the time."""
    found: dict[tuple[int, int], JsonObject] = {}
    for number, task in enumerate(data["tasks"]):
        places = [tuple(data["paths"][path][-1][:2]) for path in task["paths"]]
        if "parent" not in task:
            for place in dict.fromkeys(places):
                row = found.setdefault(place, {"time": 0.0, "tasks": []})
                row["time"] += time(task) * places.count(place) / len(places)
                row["tasks"].append(number)
    texts = [dict(file["lines"]) for file in data["files"]]
    counts: dict[tuple[str, str], int] = {}
    for (file, line), row in sorted(found.items()):
        name = data["files"][file]["name"].rpartition("/")[2]
        text = texts[file].get(line, "").strip() or f"line {line}"
        counts[name, text] = counts.get((name, text), 0) + 1
        yield (name, text, counts[name, text]), {**row, "where": f"{name}:{line}", "text": text}


def _compared_tasks_of_report(data: JsonObject, time: Callable[[JsonObject], float]) -> Iterator[Row]:
    counts: dict[tuple[str, str], int] = {}
    for number, task in enumerate(data["tasks"]):
        if "parent" not in task:
            key = task["name"], task["label"]
            counts[key] = counts.get(key, 0) + 1
            row = {"time": time(task), "tasks": [number], "where": f"t{number}", "text": task["label"]}
            yield (*key, counts[key]), row


def _join_two_reports(first: dict[Any, JsonObject], second: dict[Any, JsonObject]) -> list[JsonObject]:
    rows = []
    for key in dict.fromkeys([*first, *second]):
        pair = first.get(key), second.get(key)
        known = next(row for row in reversed(pair) if row is not None)
        rows.append(
            {
                "where": known["where"],
                "text": known["text"],
                "times": [None if row is None else round(row["time"], 3) for row in pair],
                "tasks": [[] if row is None else row["tasks"] for row in pair],
            }
        )
    return sorted(rows, key=lambda row: -abs((row["times"][1] or 0.0) - (row["times"][0] or 0.0)))


def _fusion_cuts(both: tuple[JsonObject, JsonObject]) -> list[list[Any]]:
    """How many cuts each rule makes in either."""
    counts = [[cut["rule"] for cut in data["cuts"]] for data in both]
    return [[rule, counts[0].count(rule), counts[1].count(rule)] for rule in dict.fromkeys(counts[0] + counts[1])]


def _duration_or_dash(microseconds: float | None) -> str:
    return "-" if microseconds is None else duration_as_text(microseconds)
