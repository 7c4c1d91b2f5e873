"""Processes that start together: their answers, and that a failure is one."""

import time
from pathlib import Path

import pytest
import zarr

from benchmarks.settings import FUSED
from benchmarks.together import group, run_all


@pytest.fixture
def task(tmp_path: Path) -> dict[str, object]:
    values = zarr.create_array(tmp_path, shape=(200, 200), chunks=(200, 200), dtype="f4")
    values[:] = 1
    return {"location": str(tmp_path), "pipeline": FUSED, "epochs": 1, "sum": 4.0}


def test_all_run_to_their_ends(task: dict[str, object]) -> None:
    start = time.perf_counter()
    seconds, cpu_seconds = run_all("epochs", [task] * 2)
    assert 0 < seconds < time.perf_counter() - start
    assert cpu_seconds > 0


def test_wrong_data_is_noticed(task: dict[str, object], capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RuntimeError, match="epochs: of 2 processes some failed"):
        run_all("epochs", [task, task | {"sum": 5.0}])
    assert "came back wrong" in capfd.readouterr().err


def test_one_that_does_not_get_ready(capfd: pytest.CaptureFixture[str]) -> None:
    task = {"peer": "LMDB", "nbytes": 8, "bytes": {}, "address": "/nowhere", "number": 0}
    with pytest.raises(RuntimeError, match="client: a process ended"), group("client", [task]):
        pass
    assert capfd.readouterr().err
