"""Tasks by stream and time, and buffers by address and time, in; a still picture (SVG) and HTML for notebooks out.

Notebooks from elsewhere are not trusted: scripts, style sheets and SVG elements vanish from them, and an `<img>` whose
address is the picture itself stays. So everything is an image, attributes and `<details>`.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from ...runtime.core.readable_text import byte_count_in_words
from .text import duration_as_text, text_shortened_for_report

WIDTH, LEFT, ROW, MEMORY = 860, 70, 18, 90
MOST_HEIGHT = 20 * ROW  # of all streams: rows of more are lower, and have no text
MOST_BARS = 200  # the longest of more
MOST_NAMES = 20  # texts in bars
FILLS = ("#3b74c4", "#8a5fc0", "#389a63", "#c98a2b", "#b85c7a", "#4f9aa8")


class TaskBar(NamedTuple):
    """A task: its name, stream, and when it runs."""

    name: str
    stream: int
    start: float
    end: float


class MemoryBlock(NamedTuple):
    """A buffer of the arena: where it lies, how long it is, and from when to when."""

    offset: int
    nbytes: int
    start: float
    end: float


def schedule_svg(bars: Sequence[TaskBar], blocks: Sequence[MemoryBlock] = ()) -> str:
    """The picture. Times are microseconds; what is shorter than half a pixel has half a pixel."""
    streams = 1 + max((bar.stream for bar in bars), default=0)
    end = max((bar.end for bar in bars), default=0.0) or 1.0
    across = (WIDTH - LEFT - 8) / end
    row = min(ROW, MOST_HEIGHT / streams)
    below = streams * row + 14
    height = round(below) + 8 + (MEMORY + 8 if blocks else 0)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        'font-family="sans-serif" font-size="11"><rect width="100%" height="100%" fill="#fff"/>'
    ]
    for stream in range(0, streams, max(1, round(ROW / row))):
        parts.append(f'<text x="4" y="{stream * row + 13:.0f}" fill="#68707a">stream {stream}</text>')
    shapes, names = [], []
    for bar in sorted(bars, key=lambda b: b.start - b.end)[:MOST_BARS]:
        x, w = LEFT + bar.start * across, max(0.5, (bar.end - bar.start) * across)
        y = bar.stream * row + row / 9
        shapes.append(_svg_rectangle_path(x, y, w, row * 7 / 9))
        if w > 40 and row == ROW:
            text = escape(text_shortened_for_report(bar.name, int(w / 7)))
            names.append(f'<text x="{x + 3:.1f}" y="{y + 11:.0f}" fill="#fff">{text}</text>')
    parts += [f'<path fill="#3b74c4" d="{"".join(shapes)}"/>', *names[:MOST_NAMES]]
    parts.append(f'<text x="{LEFT}" y="{below:.0f}" fill="#68707a">0</text>')
    parts.append(
        f'<text x="{WIDTH - 8}" y="{below:.0f}" fill="#68707a" text-anchor="end">{duration_as_text(end)}</text>'
    )
    arena = max((block.offset + block.nbytes for block in blocks), default=0)
    if arena:
        top = below + 10
        parts.append(f'<text x="4" y="{top + 10:.0f}" fill="#68707a">{byte_count_in_words(arena)}</text>')
        colours: list[list[str]] = [[] for _ in FILLS]
        for i, block in enumerate(sorted(blocks, key=lambda b: -b.nbytes)[:MOST_BARS]):
            x, w = LEFT + block.start * across, max(0.5, (block.end - block.start) * across)
            h = max(0.5, block.nbytes / arena * MEMORY - 0.5)
            at = top + MEMORY * (1 - (block.offset + block.nbytes) / arena)
            colours[i % len(FILLS)].append(_svg_rectangle_path(x, at, w, h))
        for fill, boxes in zip(FILLS, colours, strict=True):
            if boxes:
                parts.append(f'<path fill="{fill}" opacity=".75" d="{"".join(boxes)}"/>')
    return "".join([*parts, "</svg>"])


def _svg_rectangle_path(x: float, y: float, w: float, h: float) -> str:
    """A rectangle, in the letters of a path: a quarter of an element of its own."""
    x_, y_, w_, h_ = (f"{number:.1f}".removesuffix(".0") for number in (x, y, w, h))
    return f"M{x_} {y_}h{w_}v{h_}h-{w_}z"


def svg_as_image_element(svg: str, words: str) -> str:
    """The picture as an element that any notebook keeps. words: what stands for it where it cannot be shown."""
    packed = base64.b64encode(svg.encode()).decode()
    return f'<img src="data:image/svg+xml;base64,{packed}" alt="{escape(words)}" style="max-width:100%">'


def html_details_element(head: str, text: str) -> str:
    """A line, and below it, when it is opened, a text: as code, which JupyterLab shows in letters of one width."""
    return f"<details><summary>{escape(head)}</summary><pre><code>{escape(text)}</code></pre></details>"
