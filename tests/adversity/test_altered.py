"""Bits that change on the network: an error of the key, and never a wrong value."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.durability.recording import preload

CASES = Path(__file__).with_name("altered_cases.py")
ROOT = CASES.parents[2]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return preload(CASES.with_name("altered.c"), tmp_path_factory.mktemp("altered"))


def run(library: Path, location: str, integrity: bool | str | None) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.adversity.altered_cases", location, str(integrity)],
        env={**os.environ, "LD_PRELOAD": str(library)},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        timeout=300,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("location", ["memory://", "directory", "source"])
def test_is_an_error_that_names_the_key(location: str, library: Path, tmp_path: Path) -> None:
    found = run(library, str(tmp_path) if location == "directory" else location, True)
    assert found["checked"]
    for name, case in found["cases"].items():
        assert case["altered"] == 1, name
        assert case["again"], name
        if name.endswith("of another key"):
            # What the message says is not to be believed, not even whose it is.
            ends = ("IntegrityError", "ServerLostError", "ChangeLostError")
            assert case["error"] in ends, (name, case)
        else:
            assert case["error"] == "IntegrityError", (name, case)
            assert case["key"] in case["text"], (name, case)


@pytest.mark.parametrize(
    "location",
    [
        "memory://",
        pytest.param("directory", marks=pytest.mark.full),
        pytest.param("source", marks=pytest.mark.full),
    ],
)
def test_is_an_error_where_it_was_encrypted(location: str, library: Path, tmp_path: Path) -> None:
    found = run(library, str(tmp_path) if location == "directory" else location, "encrypted")
    assert found["checked"]
    for name, case in found["cases"].items():
        assert case["altered"] == 1, name
        assert case["again"], name
        # A server ends the session of a client whose messages are not what it has sent.
        changes = name.startswith(("set ", "write_"))
        error = "ChangeLostError" if changes else "IntegrityError"
        assert case["error"] == error, (name, case)
        assert case["key"] in case["text"], (name, case)


def test_is_not_noticed_without_checksums(library: Path) -> None:
    """As it was, and is where they are switched off: so the test above can fail."""
    found = run(library, "memory://", False)
    assert not found["checked"]
    unnoticed = {name for name, case in found["cases"].items() if case["right"] is False}
    assert {"reads block", "set block", "read_all raw", "read_rows raw", "batch"} <= unnoticed
