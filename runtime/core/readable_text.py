"""Texts as people meet them. Strings show as they read, and no more lines of one than fit a screen or two."""

from __future__ import annotations

from collections.abc import Iterable

MOST_LINES = 40


class Text(str):
    """A string whose `repr` is itself: as the last line of a notebook's cell it shows as it prints.

    >>> Text("two\\nlines")
    two
    lines
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def byte_count_in_words(nbytes: float) -> str:
    """`512 B`, `1.5 KiB`, `20 MiB`: three digits.

    >>> byte_count_in_words(512), byte_count_in_words(1536), byte_count_in_words(20 << 20)
    ('512 B', '1.5 KiB', '20 MiB')
    """
    for unit, power in (("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if nbytes >= 1 << power:
            return f"{nbytes / (1 << power):.3g} {unit}"
    return f"{nbytes:.0f} B"


_CONSONANT_U = ("uint", "ufunc", "uni", "use")  # which begin with the sound of "you"


def with_article(noun: object) -> str:
    """A noun behind `a` or `an`, as it is said.

    >>> with_article("int64"), with_article("uint8"), with_article("UnsupportedError")
    ('an int64', 'a uint8', 'an UnsupportedError')
    """
    text = str(noun)
    said = text.lower().lstrip("_")
    return f"{'an' if said[:1] in set('aeiou') and not said.startswith(_CONSONANT_U) else 'a'} {text}"


def shorten_printed_lines(lines: Iterable[str]) -> str:
    """The first lines, and how many more `print` shows.

    >>> shorten_printed_lines(["one", "two"])
    'one\\ntwo'
    """
    every = list(lines)
    if len(every) <= MOST_LINES:
        return "\n".join(every)
    return "\n".join([*every[: MOST_LINES - 1], f"... and {len(every) - MOST_LINES + 1} more lines, which print shows"])
