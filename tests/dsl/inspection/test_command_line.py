"""The commands do what they say, in text and as data, and touch nothing that is not ours."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from kernelgraph.dsl.inspection.command_line import main
from kernelgraph.runtime.core.cache_contents import cache_entries
from kernelgraph.runtime.core.disk_cache import DiskCache
from kernelgraph.runtime.core.settings import override

SCRIPT = """
import sys
import numpy as np
import kernelgraph as kg

@kg.kernel_graph(device="cpu")
def scale(x, by):
    return np.exp(x) * by

@kg.kernel_graph(device="cpu")
def total(x):
    return x.sum()

print(float(total(scale(np.ones((50, 50)), float(sys.argv[1])))))
if len(sys.argv) > 2:
    sys.exit(3)
"""


def told(capsys: Any, *words: str) -> tuple[int, str]:
    status = main(words)
    return status, capsys.readouterr().out


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT, encoding="utf-8")
    return path


def test_info_is_text_and_data(capsys: Any) -> None:
    status, text = told(capsys, "info")
    status_too, data = told(capsys, "info", "--json")
    info = json.loads(data)
    assert status == status_too == bool(info["problems"]) and len(text.splitlines()) < 24
    assert info["packages"]["numpy"] in text and info["cpu"]["vector bytes"] in (16, 32, 64)


def test_a_script_is_reported_and_profiled(script: Path, tmp_path: Path, capsys: Any) -> None:
    page, trace = tmp_path / "page.html", tmp_path / "trace.json"
    status, text = told(capsys, "report", "-o", str(page), str(script), "2")
    assert status == 0 and "scale(x: float64[50,50], by: float)" in text and page.stat().st_size > 10_000
    assert text.startswith(f"{2 * 2500 * 2.718281828459045:.2f}"[:7])
    status, text = told(capsys, "report", "--json", "--function", "total", "-o", str(page), str(script), "2")
    (data,) = json.loads(text.partition("\n")[2])
    assert data["function"]["name"] == "total" and data["runs"]
    assert told(capsys, "report", "--function", "other", "-o", str(page), str(script), "2")[0] == 1
    status, text = told(capsys, "profile", "--trace", str(trace), str(script), "2", "exit")
    assert status == 3 and "total us" in text and json.loads(trace.read_text())["traceEvents"]
    script.write_text("raise KeyError('here')")
    assert main(["profile", str(script)]) == 1 and "KeyError: 'here'" in capsys.readouterr().err


ERRORS = """
import numpy as np
import kernelgraph as kg

@kg.kernel_graph(device="cpu")
def refuses(x):
    if len(x) > 2:
        raise ValueError("too long")
    return x

@kg.kernel_graph(device="cpu")
def assigns(x):
    x[0] = 1
    return {}["no key"]

@kg.kernel_graph(device="cpu")
def total(x):
    return x.sum()

for function in (refuses, assigns):
    try:
        function(np.ones(3))
    except (ValueError, KeyError):
        pass
"""


@pytest.mark.parametrize("succeed", [True, False])
def test_calls_that_fail_are_no_part_of_a_page(script: Path, tmp_path: Path, capsys: Any, succeed: bool) -> None:
    page, trace = tmp_path / "page.html", tmp_path / "trace.json"
    script.write_text(ERRORS + "total(np.ones(3))" * succeed)
    status, text = told(capsys, "report", "-o", str(page), str(script))
    assert (status, "total(x: float64[3])" in text, "refuses" in text) == (0 if succeed else 2, succeed, False)
    status, text = told(capsys, "profile", "--trace", str(trace), "--report", str(page), str(script))
    assert status == 0 and ("total" in trace.read_text()) is succeed


def test_the_cache_is_listed_and_cleared_and_nothing_else_is_touched(tmp_path: Path, capsys: Any) -> None:
    with override(cache_dir=str(tmp_path / "cache")):
        assert told(capsys, "cache", "list")[0] == 0 and cache_entries() == []
        for kind, key in (("cpu", "a"), ("cpu", "b"), ("tune", "c")):
            DiskCache(kind).put(key, b"x" * 100)
        foreign = tmp_path / "cache" / "cpu" / "notes.txt"
        foreign.write_text("mine")
        open_to_all = tmp_path / "cache" / "shared"
        open_to_all.mkdir()
        open_to_all.chmod(0o777)
        (open_to_all / "d").write_bytes(b'{"format": 1, "kind": "shared", "key": "d"}\n')
        old = time.time() - 40 * 86400
        os.utime(tmp_path / "cache" / "cpu" / "a", (old, old))
        rows = json.loads(told(capsys, "cache", "list", "--json")[1])["kinds"]
        assert [(r["kind"], r["entries"]) for r in rows] == [("cpu", 2), ("tune", 1)]
        assert json.loads(told(capsys, "cache", "clear", "--older", "30d", "--json")[1])["removed"] == 1
        assert told(capsys, "cache", "clear", "--older", "soon")[0] == 2
        assert "removed 2 entries" in told(capsys, "cache", "clear")[1]
        assert foreign.exists() and (open_to_all / "d").exists() and cache_entries() == []


def test_a_function_is_timed(tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "timed_here.py").write_text("import numpy as np\ndef f(x, n):\n    return np.sqrt(x) * n\n")
    monkeypatch.chdir(tmp_path)
    words = ["bench", "timed_here:f", "float32[40,50]", "3", "--calls", "3", "--device", "cpu"]
    data = json.loads(told(capsys, *words, "--json")[1])
    assert data["ratio"] > 0 and set(data["microseconds"]) == {"numpy", "kernelgraph"}
    assert "times as fast" in told(capsys, *words)[1]
    assert main(["bench", "nowhere:f"]) == 2 and "write module:function" in capsys.readouterr().err


MISTAKES = (  # words of a command line, and what the one line says of them
    ("report none.py", "no file none.py"),
    ("report -o no/such/x.html script.py", "no/such/x.html cannot be written"),
    ("profile --trace no/such/x.json script.py", "no/such/x.json cannot be written"),
    ("profile --report no/such/x.html script.py", "no/such/x.html cannot be written"),
    ("cache clear --older abc", "write a number and s, m, h or d"),
    ("bench timed_here", "write module:function"),
    ("bench nowhere:f", "No module named 'nowhere'"),
    ("bench timed_here:g", "no attribute 'g'"),
    ("bench timed_here:f", "missing a required argument: 'x'"),
    ("bench timed_here:f float32[3] 1 2", "too many positional arguments"),
    ("bench timed_here:f float33[3] 1", "float33"),
    ("bench timed_here:f float32[3] 1 --device foo", "--device foo"),
)


@pytest.mark.parametrize(("words", "said"), MISTAKES, ids=lambda text: text.replace(" ", "-"))
def test_a_mistake_is_one_line(
    words: str, said: str, script: Path, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "timed_here.py").write_text("def f(x, n):\n    return x * n\n")
    monkeypatch.chdir(tmp_path)
    assert main(words.split()) == 2
    out, err = capsys.readouterr()
    assert not out and said in err and len(err.splitlines()) == 1 and "Traceback" not in err


def test_version_help_and_counts(capsys: Any) -> None:
    assert main([]) == 0 and "usage" in capsys.readouterr().out
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0 and "." in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["bench", "math:sqrt", "2.0", "--calls", "0"])
    assert "write at least 1" in capsys.readouterr().err


def test_a_method_is_timed(tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "timed_class.py").write_text("class K:\n    @staticmethod\n    def m(x):\n        return x + 1\n")
    monkeypatch.chdir(tmp_path)
    assert told(capsys, "bench", "timed_class:K.m", "float32[4]", "--calls", "2", "--device", "cpu")[0] == 0


def test_variables_that_are_no_settings_are_told(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELGRAPH_TREADS", "2")
    status, text = told(capsys, "info")
    assert status == 1 and "KERNELGRAPH_TREADS is no setting; did you mean KERNELGRAPH_THREADS?" in text


def test_a_cache_that_cannot_be_kept_is_told(capsys: Any) -> None:
    with override(cache_dir="/proc/none"):
        assert "nothing can be kept in /proc/none" in told(capsys, "info")[1]


def test_a_module_is_profiled_and_reported(tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "profiled_module.py").write_text(
        "import sys\nimport numpy as np\nimport kernelgraph as kg\nassert sys.argv[1:] == ['3', '4']\n"
        "np.asarray(kg.kernel_graph(lambda x: x + 1, device='cpu')(np.ones(int(sys.argv[1]))))\n"
    )
    monkeypatch.chdir(tmp_path)
    status, text = told(capsys, "profile", "-m", "profiled_module", "3", "4")
    assert status == 0 and "kernel" in text
    assert told(capsys, "report", "-o", "page.html", "-m", "profiled_module", "3", "4")[0] == 0
    assert (tmp_path / "page.html").is_file()


def test_a_script_without_decorated_functions_is_told(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "plain.py"
    path.write_text("import numpy\n")
    for command in ("profile", "report"):
        assert main([command, str(path)]) == 1
        assert "calls no decorated function" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words, message",
    [
        (("profile",), "name a script, or a module after -m"),
        (("bench", "math"), "math: write module:function"),
        (("bench", "math:"), "write module:function"),
        (("bench", "--device", "foo", "math:sqrt", "2.0"), "--device foo: there is no device 'foo'"),
        (("bench", "math:sqroot", "2.0"), "no attribute 'sqroot'"),
    ],
)
def test_each_mistake_is_one_line(capsys: Any, words: tuple[str, ...], message: str) -> None:
    assert main([*words]) == 2
    text = capsys.readouterr().err
    assert message in text and len(text.splitlines()) == 1


def test_an_instance_method_is_timed(tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "timed_object.py").write_text("class K:\n    def m(self, x):\n        return x + 1\n")
    monkeypatch.chdir(tmp_path)
    assert told(capsys, "bench", "timed_object:K.m", "float32[4]", "--calls", "2", "--device", "cpu")[0] == 0


def test_the_help_names_the_launcher_and_the_command(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["/usr/bin/kernelgraph"])
    assert main([]) == 0
    text = capsys.readouterr().out
    assert text.startswith("usage: kernelgraph [-h]") and "kernelgraph.run" in text
