"""The plugin that fails a run whose process keeps too much memory."""

import subprocess
import sys
from pathlib import Path

import numpy as np

from tests.resident import MOST_BYTES, Kept, resident_bytes

MIB = 1 << 20

TWO_TESTS = """
import numpy as np
import pytest
from tests.resident import Kept, resident_bytes

kept = []

@pytest.fixture(autouse=True, scope="session")
def plugin(request):
    request.config.pluginmanager.register(Kept(resident_bytes() + (200 << 20)))

def test_lets_go():
    assert np.ones(300 << 20, "u1").all()

def test_keeps():
    kept.append(np.ones(300 << 20, "u1"))

def test_after_it():
    pass
"""


def looks(most: int, *sizes: int) -> list[str]:
    """Return what is said after each of some tests that leave so many MiB."""
    left = iter([0, *(size * MIB for size in sizes)])
    last = 0

    def now() -> int:
        nonlocal last
        last = next(left, last)
        return last

    kept = Kept(most * MIB, now)
    return [kept.look(f"test_{number}") for number in range(len(sizes))]


def test_nothing_is_said_below_the_bound() -> None:
    assert looks(100, 10, 100, 50, 100) == [""] * 4


def test_the_test_that_passes_the_bound_is_named() -> None:
    _, _, said, *_ = looks(100, 60, 90, 101, 101)
    first, *others = said.splitlines()
    assert "After test_2 this process" in first
    assert "has 101 MiB of memory, more than 100 MiB" in first
    assert others == ["  60 MiB: test_0", "  30 MiB: test_1", "  11 MiB: test_2"]


def test_garbage_is_not_what_is_kept() -> None:
    sizes = iter([0, 101 * MIB, 99 * MIB])  # the last one after that was let go of
    assert Kept(100 * MIB, lambda: next(sizes)).look("test") == ""


def test_it_is_said_once() -> None:
    kept = Kept(MIB, lambda: 2 * MIB)
    assert kept.look("one")
    assert kept.look("other") == ""


def test_the_memory_of_this_process() -> None:
    before = resident_bytes()
    assert 0 < before < MOST_BYTES
    array = np.ones(64 * MIB, "u1")
    assert resident_bytes() - before > 60 * MIB
    del array


def test_a_run_fails(tmp_path: Path) -> None:
    (tmp_path / "test_two.py").write_text(TWO_TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    root = Path(__file__).parents[1]
    done = subprocess.run(
        [*command, "-c", "/dev/null", "--rootdir", tmp_path, tmp_path / "test_two.py"],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "3 passed, 1 error" in done.stdout
    assert "After test_two.py::test_keeps this process" in done.stdout
