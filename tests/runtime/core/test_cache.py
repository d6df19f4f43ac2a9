"""The disk cache gives back what was put, or nothing: never damaged, foreign or half-written bytes, never an error."""

import ast
import ctypes
import os
import pickle
import random
import stat
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from kernelgraph.runtime.codegen import elf_loader, llvm_jit
from kernelgraph.runtime.core import disk_cache
from kernelgraph.runtime.core.disk_cache import DiskCache, sha256_digest
from kernelgraph.runtime.core.settings import override
from kernelgraph.runtime.devices.cuda.compile import compile as cuda_compile
from kernelgraph.runtime.tune import tuner

KEY = sha256_digest("key")


@pytest.fixture
def folder(tmp_path):
    with override(cache_dir=str(tmp_path / "cache")):
        yield tmp_path / "cache" / "test"


@given(st.binary(max_size=300), st.lists(st.text(max_size=5), max_size=3))
@hypothesis_settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_what_was_put_comes_back(folder, payload, parts):
    key = sha256_digest(*parts)
    assert DiskCache("test").put(key, payload, {"parts": parts})
    assert DiskCache("test").get(key) == payload
    assert DiskCache("test").description(key) == {"parts": parts}
    assert DiskCache("other").get(key) is None
    assert DiskCache("test").get(sha256_digest(*parts, "more")) is None


@given(st.lists(st.binary(max_size=3), max_size=4), st.lists(st.binary(max_size=3), max_size=4))
def test_digest_tells_lists_of_parts_apart(a, b):
    assert (sha256_digest(*a) == sha256_digest(*b)) == (a == b)


def test_entries_and_folders_are_private(folder):
    DiskCache("test").put(KEY, b"payload")
    assert stat.S_IMODE((folder / KEY).stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o700
    assert [p.name for p in folder.iterdir()] == [KEY]


def test_any_damage_is_seen(folder):
    DiskCache("test").put(KEY, b"some machine code")
    good = (folder / KEY).read_bytes()
    for position in range(0, len(good), 3):
        for bad in (good[:position], good[:position] + bytes([good[position] ^ 1]) + good[position + 1 :]):
            (folder / KEY).write_bytes(bad)
            assert DiskCache("test").get(KEY) in (None, b"some machine code")
            if position > good.index(b"\n"):
                assert DiskCache("test").get(KEY) is None
    for bad in (b"", b"\n", b"[]\n", b"{}\n", b'{"format": 1}\nx', good + b"x", b"\xff" * 100):
        (folder / KEY).write_bytes(bad)
        assert DiskCache("test").get(KEY) is None
    assert DiskCache("test").put(KEY, b"again")
    assert DiskCache("test").get(KEY) == b"again"


def test_what_is_put_first_stays(folder):
    assert DiskCache("test").put_first(KEY, b"first") == b"first"
    assert DiskCache("test").put_first(KEY, b"second") == b"first"
    assert DiskCache("test").get(KEY) == b"first"
    assert [p.name for p in folder.iterdir()] == [KEY]
    (folder / KEY).write_bytes(b"damaged")
    assert DiskCache("test").put_first(KEY, b"third") == b"third"
    assert DiskCache("test").get(KEY) == b"third"
    assert DiskCache("test").put(KEY, b"fourth") and DiskCache("test").get(KEY) == b"fourth"
    with override(cache_dir=""):
        assert DiskCache("test").put_first(KEY, b"fifth") == b"fifth"


def test_an_entry_under_another_name_is_foreign(folder):
    DiskCache("test").put(KEY, b"payload")
    (folder / sha256_digest("other")).write_bytes((folder / KEY).read_bytes())
    (folder / sha256_digest("other")).chmod(0o600)
    assert DiskCache("test").get(sha256_digest("other")) is None


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_writable_by_others_is_not_trusted(folder, mode):
    DiskCache("test").put(KEY, b"payload")
    (folder / KEY).chmod(mode)
    assert DiskCache("test").get(KEY) is None
    (folder / KEY).chmod(0o600)
    assert DiskCache("test").get(KEY) == b"payload"
    for path in (folder, folder.parent):
        path.chmod(0o700 | mode & 0o077)
        assert DiskCache("test").get(KEY) is None
        assert not DiskCache("test").put(KEY, b"payload")
        path.chmod(0o700)
    assert DiskCache("test").get(KEY) == b"payload"


def test_of_another_user_is_not_trusted(folder, monkeypatch):
    DiskCache("test").put(KEY, b"payload")
    uid = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: uid + 1)
    assert DiskCache("test").get(KEY) is None
    assert not DiskCache("test").put(KEY, b"payload")


def test_links_are_not_followed(folder, tmp_path):
    DiskCache("test").put(KEY, b"payload")
    (tmp_path / "target").write_bytes((folder / KEY).read_bytes())
    (tmp_path / "target").chmod(0o600)
    (folder / KEY).unlink()
    (folder / KEY).symlink_to(tmp_path / "target")
    assert DiskCache("test").get(KEY) is None
    DiskCache("test").put(KEY, b"new")
    assert DiskCache("test").get(KEY) == b"new"
    assert b"payload" in (tmp_path / "target").read_bytes()
    folder.rename(tmp_path / "moved")
    folder.symlink_to(tmp_path / "moved")
    assert DiskCache("test").get(KEY) is None


def test_a_folder_or_pipe_in_the_place_of_an_entry(folder):
    DiskCache("test").put(sha256_digest("first"), b"payload")
    (folder / KEY).mkdir()
    assert DiskCache("test").get(KEY) is None
    assert not DiskCache("test").put(KEY, b"payload")
    os.mkfifo(folder / sha256_digest("pipe"))
    assert DiskCache("test").get(sha256_digest("pipe")) is None
    assert sorted(p.name for p in folder.iterdir()) == sorted([sha256_digest("first"), KEY, sha256_digest("pipe")])


def test_no_folder_no_cache_no_error(tmp_path):
    (tmp_path / "file").write_text("")
    for place in ("", str(tmp_path / "file"), str(tmp_path / "file" / "below"), "/proc/none", "\0"):
        with override(cache_dir=place):
            assert not DiskCache("test").put(KEY, b"payload")
            assert DiskCache("test").get(KEY) is None


def test_keys_are_names_not_paths(folder):
    for key in ("../up", "a/b", "/etc/passwd"):
        assert not DiskCache("test").put(key, b"payload")
        assert DiskCache("test").get(key) is None


def test_oldest_entries_go_first(folder):
    with override(cache_bytes=16_000):  # so that every entry of 1000 bytes is an occasion
        for i in range(40):
            DiskCache("test").put(sha256_digest(str(i)), bytes(1000))
            if (folder / sha256_digest(str(i))).exists():
                os.utime(folder / sha256_digest(str(i)), (i, i))
            assert sum(p.stat().st_size for p in folder.iterdir()) <= 16_000
    assert DiskCache("test").get(sha256_digest("39")) == bytes(1000)
    assert DiskCache("test").get(sha256_digest("0")) is None


@pytest.mark.parametrize(("drawn", "looks"), [(0, 5), (255, 0)])
def test_few_of_those_who_write_look_at_all_entries(folder, monkeypatch, drawn, looks):
    scans = []
    monkeypatch.setattr(os, "urandom", lambda count: bytes([drawn]) * count)
    monkeypatch.setattr(disk_cache, "_evict_oldest_cache_entries", lambda *given: scans.append(given))
    for i in range(5):
        assert DiskCache("test").put(sha256_digest(str(i)), bytes(1000))
    assert len(scans) == looks


def test_writers_at_once_leave_a_whole_entry(folder):
    payloads = [bytes([i]) * 50_000 for i in range(4)]
    seen = []

    def write(payload):
        for _ in range(5):
            DiskCache("test").put(KEY, payload)
            seen.append(DiskCache("test").get(KEY))

    threads = [threading.Thread(target=write, args=(p,)) for p in payloads]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(seen) == 20 and all(s in payloads for s in seen)
    assert [p.name for p in folder.iterdir()] == [KEY]


WRITERS = """
import sys, time
from kernelgraph.runtime.core.disk_cache import DiskCache, sha256_digest
me, start = int(sys.argv[1]), float(sys.argv[2])
time.sleep(max(0.0, start - time.time()))
cache = DiskCache("test")
for turn in range(25):
    key = sha256_digest(str(turn % 3))
    assert cache.put(key, bytes([me]) * (10_000 + 1000 * me))
    seen = cache.get(key)
    assert seen is not None and seen == seen[:1] * (10_000 + 1000 * seen[0]), "not whole"
"""


def processes(program, count, folder, *arguments):
    """Run a program in several processes at once; what each prints."""
    given = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "KERNELGRAPH_CACHE_DIR": str(folder)}
    start = [sys.executable, "-c", textwrap.dedent(program)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    running = [subprocess.Popen([*start, str(i), *arguments], env=given, **pipes) for i in range(count)]
    ended = [(process, *process.communicate(timeout=300)) for process in running]
    for process, _, complaints in ended:
        assert process.returncode == 0, complaints
    return [out for _, out, _ in ended]


def test_of_writers_at_once_all_have_what_is_put_first(folder):
    kept = []
    threads = [
        threading.Thread(target=lambda i=i: kept.append(DiskCache("test").put_first(KEY, bytes([i]) * 50_000)))
        for i in range(8)
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(kept) == 8 and set(kept) == {DiskCache("test").get(KEY)}


def test_eight_processes_write_and_read_at_once(tmp_path):
    processes(WRITERS, 8, tmp_path / "cache", str(time.time() + 3))
    with override(cache_dir=str(tmp_path / "cache")):
        for key in map(sha256_digest, "012"):
            seen = DiskCache("test").get(key)
            assert seen == seen[:1] * (10_000 + 1000 * seen[0])
    assert sorted(p.name for p in (tmp_path / "cache" / "test").iterdir()) == sorted(map(sha256_digest, "012"))


COLD = """
import ctypes
from kernelgraph.runtime.codegen import llvm_jit as machine_code
from tests.counts import examples
compiled, compile_object = [], machine_code.compile_llvm_ir_to_object_file
machine_code.compile_llvm_ir_to_object_file = lambda text, name: compiled.append(name) or compile_object(text, name)
for n in range(4):
    text = "define i64 @f(i64 %x) {\\n  %y = add i64 %x, " + str(n) + "\\n  ret i64 %y\\n}\\n"
    assert machine_code.compile_llvm_ir(text, "f").function("f", ctypes.c_int64, ctypes.c_int64)(3) == 3 + n
print(len(compiled))
"""


def test_eight_cold_starts_share_a_folder_and_the_next_one_compiles_nothing(tmp_path):
    cold = processes(COLD, 8, tmp_path / "cache")
    assert max(map(int, cold)) > 0
    assert processes(COLD, 1, tmp_path / "cache") == ["0\n"]


class Bomb:
    """An object whose unpickling leaves a mark."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return open, (str(self.mark), "w")


TEXT = "define i64 @f(i64 %x) {\n  %y = add i64 %x, 5\n  ret i64 %y\n}\n"


@pytest.mark.parametrize("kind", ["pickle", "empty", "short", "noise", "half", "flipped"])
def test_an_entry_with_the_right_digest_and_no_machine_code_is_compiled_again(folder, tmp_path, kind):
    """Whatever made it: it is parsed as an object file, never unpickled, and what it lacks is no error."""
    add = llvm_jit.compile_llvm_ir(TEXT, "f").function("f", ctypes.c_int64, ctypes.c_int64)
    assert add(3) == 8
    key = llvm_jit.llvm_cache_key(TEXT)
    right = DiskCache("cpu").get(key)
    assert right is not None
    mark = tmp_path / "mark"
    payload = {
        "pickle": pickle.dumps(Bomb(mark)),
        "empty": b"",
        "short": right[:10],
        "noise": random.Random(0).randbytes(2000),
        "half": right[: len(right) // 2],
        "flipped": right[:40] + bytes(b ^ 0xFF for b in right[40:64]) + right[64:],  # the place of the sections
    }[kind]
    assert DiskCache("cpu").put(key, payload)
    add = llvm_jit.compile_llvm_ir(TEXT, "f").function("f", ctypes.c_int64, ctypes.c_int64)
    assert add(4) == 9 and not mark.exists()
    assert DiskCache("cpu").get(key) == right


def test_what_another_version_wrote_is_not_taken(folder, monkeypatch):
    """Another llvmlite, another machine, another format of entries or of keys: a new key, or no entry."""
    llvm_jit.compile_llvm_ir(TEXT, "f")
    assert DiskCache("cpu").get(llvm_jit.llvm_cache_key(TEXT)) is not None
    for name, value in (
        ("_llvm_version", lambda: "0.1"),
        ("_identity_of_cpu_and_libraries", lambda: ("another",)),
        ("_FORMAT", 99),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(llvm_jit, name, value)
            assert DiskCache("cpu").get(llvm_jit.llvm_cache_key(TEXT)) is None
    with override(cpu_features="-avx2"):
        assert DiskCache("cpu").get(llvm_jit.llvm_cache_key(TEXT)) is None
    with monkeypatch.context() as patch:
        patch.setattr(disk_cache, "FORMAT", disk_cache.FORMAT + 1)
        assert DiskCache("cpu").get(llvm_jit.llvm_cache_key(TEXT)) is None
        assert DiskCache("cpu").put(llvm_jit.llvm_cache_key(TEXT), b"newer")
    assert DiskCache("cpu").get(llvm_jit.llvm_cache_key(TEXT)) is None  # a newer version's, seen by this one


def test_nothing_that_reads_the_cache_can_unpickle():
    for module in (disk_cache, llvm_jit, elf_loader, tuner, cuda_compile):
        for node in ast.walk(ast.parse(Path(module.__file__).read_text())):
            if isinstance(node, ast.FunctionDef) and "pickle" in ast.unparse(node):
                # between this process and its own children, through pipes
                assert module is cuda_compile and node.name in (
                    "_compile_cubins_in_helper_process",
                    "serve_cubin_compilations",
                ), f"{module.__name__}.{node.name}"
