"""What is on a mesh, in files of its parts, is read by meshes of other sizes; what is not complete is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kernelgraph as kg

WHOLE = np.arange(24.0)
SQUARE = np.arange(96, dtype=np.int16).reshape(8, 12)
LOW = np.arange(12).astype(kg.bfloat16)


@pytest.fixture(autouse=True)
def on_the_cpu() -> Iterator[None]:
    with kg.override(cpu_devices=4, collective_timeout=30), kg.device("cpu"):
        yield


def made(mesh: kg.Mesh) -> dict[Any, Any]:
    return {
        "layers": [kg.shard(WHOLE, mesh), (kg.shard(SQUARE, mesh, axis=1), kg.replicate(SQUARE, mesh))],
        7: kg.shard(LOW, mesh),
        "step": 12,
        "names": {"rate": np.array([0.5], ">f4"), "none": []},
    }


def check(found: Any, mesh: kg.Mesh | None) -> None:
    first, (second, third), low = found["layers"][0], found["layers"][1], found[7]
    for array, want, axis in ((first, WHOLE, 0), (second, SQUARE, 1), (third, SQUARE, None), (low, LOW, 0)):
        np.testing.assert_array_equal(np.asarray(array), want)
        assert array.dtype == want.dtype
        assert isinstance(array, np.ndarray) if mesh is None else (array.mesh, array.axis) == (mesh, axis)
    assert found["step"] == 12 and found["names"]["none"] == [] and found["names"]["rate"].tolist() == [0.5]


@pytest.mark.parametrize(("before", "after"), [(1, 4), (4, 2), (3, 4), (4, 3), (4, 4)])
def test_another_number_of_ranks_reads_what_ranks_wrote(tmp_path: Path, before: int, after: int) -> None:
    """Also from a folder that holds an older checkpoint."""

    def save() -> None:
        with kg.device("cpu"):
            for turn in range(2):
                values = made(kg.Mesh(before))
                kg.save_sharded(tmp_path / "run", {"old": kg.replicate(WHOLE, kg.Mesh(before))} if not turn else values)

    def load() -> None:
        with kg.device("cpu"):
            check(kg.load_sharded(tmp_path / "run", mesh := kg.Mesh(after)), mesh)
            check(kg.load_sharded(tmp_path / "run"), None)

    kg.distributed.run_threads(before, save)
    kg.distributed.run_threads(after, load)
    written = {path.name for path in (tmp_path / "run").iterdir()}
    assert {f"0.{rank}.npy" for rank in range(before)} | {"values.json", "2.0.npy"} <= written
    assert "2.1.npy" not in written  # what is whole on each is written once


def test_devices_read_what_ranks_wrote(tmp_path: Path) -> None:
    def save() -> None:
        with kg.device("cpu"):
            kg.save_sharded(tmp_path, made(kg.Mesh(2)))

    kg.distributed.run_threads(2, save)
    for count in (1, 3, 4):
        mesh = kg.Mesh([f"cpu:{i}" for i in range(count)])
        check(kg.load_sharded(tmp_path, mesh), mesh)


def test_a_folder_that_is_not_complete(tmp_path: Path) -> None:
    mesh = kg.Mesh(["cpu:0", "cpu:1"])
    with pytest.raises(
        kg.ArgumentsError, match=r"test_checkpoints.py:\d+: .*values\.json, which kg\.save_sharded writes last"
    ):
        kg.load_sharded(tmp_path, mesh)
    kg.save_sharded(tmp_path, [kg.shard(WHOLE, mesh)])
    (tmp_path / "0.1.npy").unlink()
    with pytest.raises(kg.ArgumentsError, match=r"test_checkpoints.py:\d+: .*0\.1\.npy cannot be read"):
        kg.load_sharded(tmp_path, mesh)
    with pytest.raises(kg.DTypeError, match=r"test_checkpoints.py:\d+"):
        kg.save_sharded(tmp_path, [kg.shard(WHOLE, mesh), object()])
    with pytest.raises(kg.ArgumentsError, match="write a string or a whole number"):
        kg.save_sharded(tmp_path, {1.5: WHOLE})
    with pytest.raises(kg.OptionError, match=r"is no kg\.Mesh"):
        kg.load_sharded(tmp_path, 4)  # type: ignore[arg-type]
    assert (
        json.loads((tmp_path / "values.json").read_text())["arrays"][0]["parts"] == 2
    )  # what was refused wrote nothing
    kg.save_sharded(tmp_path, [kg.shard(WHOLE, mesh)])
    kg.settings.cpu_devices = 5
    with pytest.raises(kg.ShapeError, match=r"test_checkpoints.py:\d+: axis 0 .*24 rows, which 5 devices cannot share"):
        kg.load_sharded(tmp_path, kg.Mesh([f"cpu:{i}" for i in range(5)]))


def test_files_that_are_cut_off_or_of_another_array(tmp_path: Path) -> None:
    mesh = kg.Mesh(["cpu:0", "cpu:1"])
    kg.save_sharded(tmp_path, [kg.shard(WHOLE, mesh), LOW])
    for name in ("values.json", "0.1.npy", "1.0.npy"):
        whole = (tmp_path / name).read_bytes()
        for length in {0, 1, 5, 9, 70, len(whole) // 2, len(whole) - 1} - {len(whole)}:
            (tmp_path / name).write_bytes(whole[:length])
            for on in (mesh, None):
                with pytest.raises(kg.ArgumentsError, match=rf"test_checkpoints.py:\d+: .*{name}"):
                    kg.load_sharded(tmp_path, on)
        (tmp_path / name).write_bytes(whole)
    for other in (WHOLE[:11], WHOLE[:12].astype("f4"), WHOLE[:12].reshape(2, 6)):
        np.save(tmp_path / "0.1.npy", other)
        with pytest.raises(kg.ArgumentsError, match="it holds"):
            kg.load_sharded(tmp_path, mesh)
