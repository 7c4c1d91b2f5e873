"""The row of a training job's loaders: what is counted in it holds on a busy machine, too."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.data import Stored, put_into_folder, smooth_values
from benchmarks.rows import loaders
from benchmarks.rows.loaders import OURS
from benchmarks.scale import QUICK
from benchmarks.settings import FUSED
from benchmarks.together import group


def test_a_chunk_is_decoded_once_for_all_loaders(tmp_path: Path) -> None:
    row = loaders.measure(QUICK, tmp_path)
    counted = {line.what: line.median for line in row.lines if not line.against}
    assert counted["decoded at the server, a chunk"] == 1
    assert counted["chunks left to the loaders"] == 0
    assert 1 <= counted[f"{OURS}: memory of all"] <= 1.5
    assert len(row.times[f"{OURS}, epoch 1"].seconds) == 1
    assert len(row.times[f"{OURS}, epochs 2 and 3"].seconds) == 2


def test_wrong_data_is_noticed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    values = smooth_values((128, 4096))
    put_into_folder(tmp_path, values, Stored((64, 4096)))
    sums = [float(values[part : part + 64, ::1024].sum(dtype=np.float64)) for part in (0, 64)]
    task = {"how": "local-store", "location": str(tmp_path), "pipeline": FUSED, "number": 0}
    with group("loader", [{**task, "sums": sums}]) as right:
        right.say(0)
        assert right.hear()[0]["cpu"] > 0
    with group("loader", [{**task, "sums": sums[::-1]}]) as wrong:
        wrong.say(0)
        with pytest.raises(RuntimeError, match="loader: a process ended with status 1"):
            wrong.hear()
    assert "came back wrong" in capfd.readouterr().err
