"""Amounts in words."""

from __future__ import annotations


def duration_as_text(microseconds: float) -> str:
    """`3.2 us`, `1.5 ms` or `2 s`: three digits.

    >>> duration(0.1234), duration(1520), duration(2e6)
    ('0.123 us', '1.52 ms', '2 s')
    """
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if microseconds >= size:
            return f"{microseconds / size:.3g} {unit}"
    return f"{microseconds:.3g} us"


def count_in_words(number: int, what: str) -> str:
    """`1 task`, `2 tasks`.

    >>> count_in_words(1, "stream"), count_in_words(3, "stream")
    ('1 stream', '3 streams')
    """
    return f"{number} {what}{'' if number == 1 else 's'}"


def text_shortened_for_report(text: str, most: int) -> str:
    """The text, or so much of it that it fits with an ellipsis."""
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"
