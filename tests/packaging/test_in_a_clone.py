"""Python that is started in a clone finds the source there first, which has no native core."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import ucxstore

SOURCE = Path(ucxstore.__file__).parent


def test_the_source_says_what_is_missing(tmp_path: Path) -> None:
    shutil.copytree(
        SOURCE, tmp_path / "ucxstore", ignore=shutil.ignore_patterns("*.so", "__pycache__")
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", "from ucxstore import Server"],  # without editable installs
        env={**os.environ, "PYTHONPATH": sysconfig.get_path("platlib")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"ImportError: {tmp_path / 'ucxstore'} is ucxstore's source")
    assert "in another folder" in last
