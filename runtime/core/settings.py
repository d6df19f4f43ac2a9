"""The table of settings. Each is a `KERNELGRAPH_*` environment variable, read once here, and an override in a `with`.

    from .settings import settings, override
    settings.engine                      # "async" unless KERNELGRAPH_ENGINE says otherwise
    with override(engine="sync"): ...    # for the whole process, until the block ends

Settings belong to the process, not to a thread: one attribute read (`special`) is all that a call pays.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from .errors import text_at_user_line
from .frozen import frozen

PREFIX = "KERNELGRAPH_"


@frozen
class Setting:
    """One row: the attribute's name, its default, how text becomes a value (ValueError if it cannot), what it does."""

    name: str
    default: Any
    parse: Callable[[str], Any]
    meaning: str

    @property
    def environment_variable(self) -> str:
        return PREFIX + self.name.upper()


def _parse_flag_setting(text: str) -> bool:
    if text.lower() in ("1", "true", "yes", "on"):
        return True
    if text.lower() in ("", "0", "false", "no", "off"):
        return False
    raise ValueError("write 0 or 1")


def _parse_count_setting(text: str) -> int:
    if not text.strip().isdigit():
        raise ValueError("write a whole number, 0 or more")
    return int(text)


def _parse_seconds_setting(text: str) -> float:
    seconds = float(text)
    if not seconds > 0:
        raise ValueError("write a number of seconds above 0")
    return seconds


def _choice_setting_parser(*words: str) -> Callable[[str], str]:
    def parse_choice_setting(text: str) -> str:
        if text not in words:
            raise ValueError("write one of " + ", ".join(words))
        return text

    return parse_choice_setting


def _default_cache_dir() -> str:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(base, "kernelgraph")


def _parse_cpu_features_setting(text: str) -> str:
    if not all(part[0] in "+-" and len(part) > 1 for part in text.split(",") if part):
        raise ValueError("write each feature as +name or -name")  # anything else makes LLVM end the process
    return text


TABLE = (
    Setting(
        "engine",
        "async",
        _choice_setting_parser("async", "sync", "chaos"),
        "sync: one step at a time; chaos: random delays",
    ),
    Setting("verify", False, _parse_flag_setting, "prove every plan free of races; trace each call again and compare"),
    Setting("tune", True, _parse_flag_setting, "let the clock choose between plans"),
    Setting("numpy", True, _parse_flag_setting, "let the clock choose between compiled code and NumPy itself"),
    Setting("roll", True, _parse_flag_setting, "capture loops of Python as one node each"),
    Setting("disable", False, _parse_flag_setting, "run functions as plain NumPy, untraced"),
    Setting(
        "untraceable",
        "warn",
        _choice_setting_parser("warn", "numpy", "refuse"),
        "what functions do that name no untraceable= and cannot be traced; refuse: raise an error at the line",
    ),
    Setting("progress", True, _parse_flag_setting, "a line about compiles of 2 s and more, in terminals and notebooks"),
    Setting("cache_dir", _default_cache_dir(), str, "folder of compiled code and tuning records; empty: no disk cache"),
    Setting("cache_bytes", 1 << 30, _parse_count_setting, "the disk cache drops its oldest entries above this size"),
    Setting("threads", 0, _parse_count_setting, "threads of the CPU device, the caller's included; 0: one per core"),
    Setting(
        "cpu_devices",
        1,
        _parse_count_setting,
        "how many devices the cores are, cpu:0, cpu:1, ..., to try programs for several",
    ),
    Setting("cpu_name", "", str, "CPU to compile for, in LLVM's words; empty: this one"),
    Setting(
        "cpu_features",
        "",
        _parse_cpu_features_setting,
        "changes to its features, e.g. -avx512f; applied to this CPU's own list",
    ),
    Setting(
        "collective_timeout",
        300.0,
        _parse_seconds_setting,
        "seconds that a rank waits in a collective for the others to come",
    ),
    Setting(
        "collectives",
        "auto",
        _choice_setting_parser("auto", "nccl", "copies", "reads", "root"),
        "what GPUs exchange arrays by: nccl; copies, between ranks through the host; reads of each other's memory, "
        "or root, one GPU for all, within a process; auto: what is fastest, as measured",
    ),
    Setting("memory_limit", 0, _parse_count_setting, "bytes each device may hold; 0: no limit"),
    Setting(
        "in_flight_bytes",
        0,
        _parse_count_setting,
        "bytes that calls in flight may hold before the next one waits; 0: a quarter of the device's memory",
    ),
    Setting(
        "release_threshold",
        0,
        _parse_count_setting,
        "free bytes that the driver's pool of a GPU keeps from other libraries and processes",
    ),
    Setting("pool_bytes", 0, _parse_count_setting, "freed bytes a device keeps for reuse; 0: a quarter of its memory"),
)

PROFILED = ("engine", "profile")  # what a profile in progress sets
ROWS = {row.name: row for row in TABLE}
# Why calls look around first, before they run what was compiled for them: each thread whose context is busy, or that
# has ended so, by its number, and "settings" where these are special.
unusual: dict[int | str, bool] = {}
ORDINARY = {"engine": "async", "verify": False, "disable": False}  # any other values make calls special


class Settings:
    """The values in force, one attribute for each row of the table."""

    engine: str
    verify: bool
    tune: bool
    numpy: bool
    roll: bool
    disable: bool
    untraceable: str
    progress: bool
    cache_dir: str
    cache_bytes: int
    threads: int
    cpu_devices: int
    cpu_name: str
    cpu_features: str
    collective_timeout: float
    collectives: str
    memory_limit: int
    in_flight_bytes: int
    release_threshold: int
    pool_bytes: int
    special: bool  # whether calls do more or other than to run, at once, what was compiled for them

    def __init__(self, environment: Mapping[str, str]) -> None:
        for row in TABLE:
            text = environment.get(row.environment_variable)
            value = row.default if text is None else _checked_setting(row, text, row.environment_variable)
            super().__setattr__(row.name, value)
        self.engine = self.engine  # so that `special` is there

    def __setattr__(self, name: str, value: Any) -> None:
        """Raises AttributeError for a name that is not in the table, ValueError for a value that its row refuses."""
        if name not in ROWS:
            raise AttributeError(_no_setting_text(name))
        super().__setattr__(name, value if (name, value) == PROFILED else _checked_setting(ROWS[name], value, name))
        if name in ORDINARY:
            special = any(getattr(self, n, v) != v for n, v in ORDINARY.items())
            super().__setattr__("special", special)
            note_unusual_calls("settings", special)

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        return "\n".join(f"{row.environment_variable}={getattr(self, row.name)}    # {row.meaning}" for row in TABLE)


def note_unusual_calls(why: int | str, so: bool) -> None:
    """Calls look around first, or no longer, for this reason."""
    if so:
        unusual[why] = True
    else:
        unusual.pop(why, None)


def _checked_setting(row: Setting, value: Any, name: str) -> Any:
    """A value, or the text of one. name: what people call it. Raises ValueError."""
    try:
        return row.parse(str(int(value)) if isinstance(value, bool) else str(value))
    except ValueError as error:
        text = f"{name}={value!r}: {error}"
        raise ValueError(text if name.startswith(PREFIX) else text_at_user_line(text)) from None


def _no_setting_text(name: str) -> str:
    return text_at_user_line(f"no setting {name!r}{_nearest_hint(name, ROWS)}; there are {', '.join(ROWS)}")


def _nearest_hint(name: str, known: Iterable[str], prefix: str = "") -> str:
    import difflib

    near = difflib.get_close_matches(name, list(known), 1)
    return f"; did you mean {prefix}{near[0]}?" if near else ""


def unknown_variables(environment: Iterable[str]) -> list[str]:
    """Of each variable's name that looks like a setting's and is none: that, and which is meant."""
    known = {row.environment_variable for row in TABLE}
    tests = tuple(PREFIX + start for start in ("BROWSER", "EXPECT_", "NUMPY_SUITE_", "REQUIRE_", "TEST_"))
    problems = []
    for name in sorted({name for name in environment if name[:1] in "Kk"} - known):
        meant = name.upper() if name.upper().startswith(PREFIX) else _with_prefix_spelt_right(name.upper())
        if meant and not meant.startswith(tests):
            hint = _nearest_hint(meant.removeprefix(PREFIX), map(str.upper, ROWS), PREFIX)
            problems.append(f"{name} is no setting{hint}")
    return problems


def _with_prefix_spelt_right(name: str) -> str:
    """KERNEL_GRAPH_TUNE -> KERNELGRAPH_TUNE; nothing for what is another program's."""
    letters = name.replace("_", "")
    for row in TABLE:
        start = letters.removesuffix(row.name.upper().replace("_", ""))
        if start != letters and "G" in start:
            import difflib

            if start == "KG" or difflib.SequenceMatcher(None, start, PREFIX[:-1]).ratio() > 0.85:
                return row.environment_variable
    return ""


settings = Settings(os.environ)
for _problem in unknown_variables(os.environ):
    warnings.warn_explicit(_problem, UserWarning, "the environment", 1)


@contextmanager
def override(**values: Any) -> Iterator[Settings]:
    """Change settings inside a `with` block. A value is given as itself or as the text of its variable.

    Parameters
    ----------
    **values
        Settings by name.

    Returns
    -------
    context manager

    Raises
    ------
    AttributeError
        For a name that is not in the table and ValueError for a value that its row refuses.

    Examples
    --------
    >>> with kg.override(disable=True):  # the function itself runs, not what was compiled
    ...     kg.kernel_graph(lambda x: x + 1)(np.zeros(2)).tolist()
    [1.0, 1.0]
    """
    if unknown := next((name for name in values if name not in ROWS), None):
        raise AttributeError(_no_setting_text(unknown))
    parsed = {name: _checked_setting(ROWS[name], value, name) for name, value in values.items()}
    before = {name: getattr(settings, name) for name in parsed}
    for name, value in parsed.items():
        setattr(settings, name, value)
    try:
        yield settings
    finally:
        for name, value in before.items():
            setattr(settings, name, value)


def allowed_cores() -> int:
    """The processor's cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
