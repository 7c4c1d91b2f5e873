"""Short trials: `make faults` makes long ones."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults import checker
from tests.hosts.network import ROOT, why_not

# Seconds of faults. Starting 19 processes takes some, too.
SHORT = 20


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("source", ["memory", "directory", "bucket"])
@pytest.mark.parametrize("options", [[], ["--decoded"]], ids=["values", "decoded"])
def test_reads_are_right_under_faults(source: str, options: list[str], tmp_path: Path) -> None:
    problem = checker.why_not() or why_not()
    if problem is not None:
        pytest.skip(problem)
    command = [sys.executable, "-m", "tests.faults", "--source", source, *options]
    command += ["--seconds", str(SHORT), "--folder", str(tmp_path / "trial")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=800)
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
