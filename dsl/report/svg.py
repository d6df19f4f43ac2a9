"""Tasks by stream and time, and buffers by address and time, in; a still picture (SVG) and HTML for notebooks out.

Notebooks from elsewhere are not trusted: scripts, style sheets and SVG elements vanish from them, and an `<img>` whose
address is the picture itself stays. So everything is an image, attributes and `<details>`.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from .text import duration, shortened, size

WIDTH, LEFT, ROW, MEMORY = 860, 70, 18, 90
MOST_BARS = 200  # the longest of more
FILLS = ("#3b74c4", "#8a5fc0", "#389a63", "#c98a2b", "#b85c7a", "#4f9aa8")


class Bar(NamedTuple):
    """A task: its name, stream, and when it runs."""

    name: str
    stream: int
    start: float
    end: float


class Block(NamedTuple):
    """A buffer of the arena: where it lies, how long it is, and from when to when."""

    offset: int
    nbytes: int
    start: float
    end: float


def schedule_svg(bars: Sequence[Bar], blocks: Sequence[Block] = ()) -> str:
    """The picture. Times are microseconds; what is shorter than half a pixel has half a pixel."""
    streams = 1 + max((bar.stream for bar in bars), default=0)
    end = max((bar.end for bar in bars), default=0.0) or 1.0
    across = (WIDTH - LEFT - 8) / end
    height = streams * ROW + 22 + (MEMORY + 8 if blocks else 0)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        'font-family="sans-serif" font-size="11"><rect width="100%" height="100%" fill="#fff"/>'
    ]
    for stream in range(streams):
        parts.append(f'<text x="4" y="{stream * ROW + 13}" fill="#68707a">stream {stream}</text>')
    for bar in sorted(bars, key=lambda b: b.start - b.end)[:MOST_BARS]:
        x, w = LEFT + bar.start * across, max(0.5, (bar.end - bar.start) * across)
        y = bar.stream * ROW + 2
        parts.append(f'<rect x="{x:.1f}" y="{y}" width="{w:.1f}" height="{ROW - 4}" fill="#3b74c4"/>')
        if w > 40:
            text = escape(shortened(bar.name, int(w / 7)))
            parts.append(f'<text x="{x + 3:.1f}" y="{y + 11}" fill="#fff">{text}</text>')
    below = streams * ROW + 14
    parts.append(f'<text x="{LEFT}" y="{below}" fill="#68707a">0</text>')
    parts.append(f'<text x="{WIDTH - 8}" y="{below}" fill="#68707a" text-anchor="end">{duration(end)}</text>')
    arena = max((block.offset + block.nbytes for block in blocks), default=0)
    if arena:
        top = below + 10
        parts.append(f'<text x="4" y="{top + 10}" fill="#68707a">{size(arena)}</text>')
        for i, block in enumerate(sorted(blocks, key=lambda b: -b.nbytes)[:MOST_BARS]):
            x, w = LEFT + block.start * across, max(0.5, (block.end - block.start) * across)
            h = max(0.5, block.nbytes / arena * MEMORY - 0.5)
            at = top + MEMORY * (1 - (block.offset + block.nbytes) / arena)
            place = f'x="{x:.1f}" y="{at:.1f}" width="{w:.1f}" height="{h:.1f}"'
            parts.append(f'<rect {place} fill="{FILLS[i % len(FILLS)]}" opacity=".75"/>')
    return "".join([*parts, "</svg>"])


def image(svg: str, words: str) -> str:
    """The picture as an element that any notebook keeps. words: what stands for it where it cannot be shown."""
    packed = base64.b64encode(svg.encode()).decode()
    return f'<img src="data:image/svg+xml;base64,{packed}" alt="{escape(words)}" style="max-width:100%">'


def folded(head: str, text: str) -> str:
    """A line, and below it, when it is opened, a text."""
    return f"<details><summary>{escape(head)}</summary><pre>{escape(text)}</pre></details>"
