"""cubed rechunks with its intermediates in a store, given as such or as a URL."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    ("executor", "kind"),
    [
        ("threads", "store"),
        ("processes", "url"),
        pytest.param("threads", "url", marks=pytest.mark.full),
        pytest.param("processes", "store", marks=pytest.mark.full),
    ],
)
def test_rechunk(executor: str, kind: str, address: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("cubed_rechunk.py"), executor, kind, address],
        cwd=tmp_path,  # where cubed leaves its history
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
