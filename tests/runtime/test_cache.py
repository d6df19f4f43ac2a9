"""The disk cache gives back what was put, or nothing: never damaged, foreign or half-written bytes, never an error."""

import os
import stat
import threading

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from kernelgraph.runtime.cache import Cache, digest
from kernelgraph.runtime.settings import override

KEY = digest("key")


@pytest.fixture
def folder(tmp_path):
    with override(cache_dir=str(tmp_path / "cache")):
        yield tmp_path / "cache" / "test"


@given(st.binary(max_size=300), st.lists(st.text(max_size=5), max_size=3))
@hypothesis_settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_what_was_put_comes_back(folder, payload, parts):
    key = digest(*parts)
    assert Cache("test").put(key, payload, {"parts": parts})
    assert Cache("test").get(key) == payload
    assert Cache("test").description(key) == {"parts": parts}
    assert Cache("other").get(key) is None
    assert Cache("test").get(digest(*parts, "more")) is None


@given(st.lists(st.binary(max_size=3), max_size=4), st.lists(st.binary(max_size=3), max_size=4))
def test_digest_tells_lists_of_parts_apart(a, b):
    assert (digest(*a) == digest(*b)) == (a == b)


def test_entries_and_folders_are_private(folder):
    Cache("test").put(KEY, b"payload")
    assert stat.S_IMODE((folder / KEY).stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o700
    assert [p.name for p in folder.iterdir()] == [KEY]


def test_any_damage_is_seen(folder):
    Cache("test").put(KEY, b"some machine code")
    good = (folder / KEY).read_bytes()
    for position in range(0, len(good), 3):
        for bad in (good[:position], good[:position] + bytes([good[position] ^ 1]) + good[position + 1 :]):
            (folder / KEY).write_bytes(bad)
            assert Cache("test").get(KEY) in (None, b"some machine code")
            if position > good.index(b"\n"):
                assert Cache("test").get(KEY) is None
    for bad in (b"", b"\n", b"[]\n", b"{}\n", b'{"format": 1}\nx', good + b"x", b"\xff" * 100):
        (folder / KEY).write_bytes(bad)
        assert Cache("test").get(KEY) is None
    assert Cache("test").put(KEY, b"again")
    assert Cache("test").get(KEY) == b"again"


def test_an_entry_under_another_name_is_foreign(folder):
    Cache("test").put(KEY, b"payload")
    (folder / digest("other")).write_bytes((folder / KEY).read_bytes())
    (folder / digest("other")).chmod(0o600)
    assert Cache("test").get(digest("other")) is None


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_writable_by_others_is_not_trusted(folder, mode):
    Cache("test").put(KEY, b"payload")
    (folder / KEY).chmod(mode)
    assert Cache("test").get(KEY) is None
    (folder / KEY).chmod(0o600)
    assert Cache("test").get(KEY) == b"payload"
    for path in (folder, folder.parent):
        path.chmod(0o700 | mode & 0o077)
        assert Cache("test").get(KEY) is None
        assert not Cache("test").put(KEY, b"payload")
        path.chmod(0o700)
    assert Cache("test").get(KEY) == b"payload"


def test_of_another_user_is_not_trusted(folder, monkeypatch):
    Cache("test").put(KEY, b"payload")
    uid = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: uid + 1)
    assert Cache("test").get(KEY) is None
    assert not Cache("test").put(KEY, b"payload")


def test_links_are_not_followed(folder, tmp_path):
    Cache("test").put(KEY, b"payload")
    (tmp_path / "target").write_bytes((folder / KEY).read_bytes())
    (tmp_path / "target").chmod(0o600)
    (folder / KEY).unlink()
    (folder / KEY).symlink_to(tmp_path / "target")
    assert Cache("test").get(KEY) is None
    Cache("test").put(KEY, b"new")
    assert Cache("test").get(KEY) == b"new"
    assert b"payload" in (tmp_path / "target").read_bytes()
    folder.rename(tmp_path / "moved")
    folder.symlink_to(tmp_path / "moved")
    assert Cache("test").get(KEY) is None


def test_a_folder_or_pipe_in_the_place_of_an_entry(folder):
    Cache("test").put(digest("first"), b"payload")
    (folder / KEY).mkdir()
    assert Cache("test").get(KEY) is None
    assert not Cache("test").put(KEY, b"payload")
    os.mkfifo(folder / digest("pipe"))
    assert Cache("test").get(digest("pipe")) is None
    assert sorted(p.name for p in folder.iterdir()) == sorted([digest("first"), KEY, digest("pipe")])


def test_no_folder_no_cache_no_error(tmp_path):
    (tmp_path / "file").write_text("")
    for place in ("", str(tmp_path / "file"), str(tmp_path / "file" / "below"), "/proc/none", "\0"):
        with override(cache_dir=place):
            assert not Cache("test").put(KEY, b"payload")
            assert Cache("test").get(KEY) is None


def test_keys_are_names_not_paths(folder):
    for key in ("../up", "a/b", "/etc/passwd"):
        assert not Cache("test").put(key, b"payload")
        assert Cache("test").get(key) is None


def test_oldest_entries_go_first(folder):
    with override(cache_bytes=20_000):
        for i in range(40):
            Cache("test").put(digest(str(i)), bytes(1000))
            if (folder / digest(str(i))).exists():
                os.utime(folder / digest(str(i)), (i, i))
            assert sum(p.stat().st_size for p in folder.iterdir()) <= 20_000
    assert Cache("test").get(digest("39")) == bytes(1000)
    assert Cache("test").get(digest("0")) is None


def test_writers_at_once_leave_a_whole_entry(folder):
    payloads = [bytes([i]) * 50_000 for i in range(4)]
    seen = []

    def write(payload):
        for _ in range(5):
            Cache("test").put(KEY, payload)
            seen.append(Cache("test").get(KEY))

    threads = [threading.Thread(target=write, args=(p,)) for p in payloads]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(seen) == 20 and all(s in payloads for s in seen)
    assert [p.name for p in folder.iterdir()] == [KEY]
