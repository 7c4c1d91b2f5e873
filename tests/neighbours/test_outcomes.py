"""Whether a difference to zarr's stores is noticed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.neighbours.outcomes import Outcomes, differences, report

HERE = Path(__file__).parent

TESTS = """
import numpy as np
import zarr

def test_memory():
    store = zarr.storage.MemoryStore()
    z = zarr.create_array(store, data=np.arange(4))
    assert z[:].tolist() == [0, 1, 2, 3]
    assert type(store).__module__ == "stores"

def test_a_dictionary():
    values = {}
    zarr.create_array(values, data=np.arange(4))
    assert zarr.open_array(values)[:].sum() == 6

def test_a_path(tmp_path):
    zarr.create_array(tmp_path / "z", data=np.arange(4))
    assert (tmp_path / "z/zarr.json").is_file()
    assert zarr.open_array(tmp_path / "z", mode="r")[:].sum() == 6
    assert type(zarr.open_array(tmp_path / "z").store).__module__ == "stores"

def test_that_fails():
    raise AssertionError

def test_that_is_skipped():
    import pytest
    pytest.skip("as it is")
"""


@pytest.mark.parametrize("replaced", [True, False])
def test_stores_are_replaced(tmp_path: Path, replaced: bool) -> None:
    from ucxstore.server import Server

    (tmp_path / "test_them.py").write_text(TESTS)
    served = tmp_path / "served"
    served.mkdir()
    outcomes = tmp_path / "outcomes.json"
    with Server("memory://") as memory, Server(served) as directory:
        places = {
            "NEIGHBOURS_MEMORY": memory.address,
            "NEIGHBOURS_DIRECTORY": directory.address,
            "NEIGHBOURS_FOLDER": str(served),
        }
        subprocess.run(
            [
                *(sys.executable, "-m", "pytest", "-c", os.devnull, "--rootdir", tmp_path),
                *("-p", "stores", "--basetemp", served / "pytest", "test_them.py"),
            ],
            cwd=tmp_path,
            env={
                **os.environ,
                **(places if replaced else {}),
                "NEIGHBOURS_OUTCOMES": str(outcomes),
                "PYTHONPATH": f"{HERE}{os.pathsep}{HERE.parents[1]}",
            },
            check=False,
            timeout=120,
        )
        assert (memory.stats().sets > 0) == (directory.stats().sets > 0) == replaced
    found = Outcomes.read(outcomes)
    named = ["that_fails"] if replaced else ["memory", "a_path", "that_fails"]
    assert found.failed == [f"test_them.py::test_{name}" for name in named]
    assert (found.passed, found.skipped) == (4 - len(named), 1)


def test_a_difference_is_what_fails_with_our_store_alone() -> None:
    ours = Outcomes(passed=5, failed=["a", "b", "c"])
    theirs = Outcomes(passed=1, failed=["b", "c"])
    assert differences(ours, theirs) == ["a"]
    assert differences(Outcomes(passed=5), Outcomes()) == []
    text = report("xarray", ours, theirs, {"memory": 1})
    assert "DIFFERS from zarr's stores: a" in text
    assert "fails with zarr's stores, too: b" in text
    assert "NOTHING" not in text
    assert "NOTHING" in report("xarray", ours, theirs, {"memory": 0})
