"""The script for zarr 2, in its environment, where `make zarr2` has made that."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import memray
import pytest

from profiles.s3 import S3Server, s3_server

PYTHON = Path("build/zarr2/bin/python")
SCRIPT = Path("profiles/zarr2.py")
SHAPE = [1000, 1000]
NBYTES = 4_000_000

pytestmark = [
    pytest.mark.skipif(not PYTHON.exists(), reason="no build/zarr2: run `make zarr2`"),
    pytest.mark.full,
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(params=["local", "s3fs"])
def spec(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    common = {"phase": "measure", "shape": SHAPE, "chunks": SHAPE, "seed": 3, "capture": None}
    if request.param == "local":
        return {**common, "store": "local", "location": str(tmp_path / "array"), "s3": None}
    server: S3Server = request.getfixturevalue("server")
    location = f"{server.bucket}/{tmp_path.name}"
    return {**common, "store": "s3fs", "location": location, "s3": server.access()}


def run(spec: dict[str, Any], **changes: Any) -> dict[str, Any]:
    done = subprocess.run(
        [str(PYTHON), "-P", str(SCRIPT)],
        input=json.dumps({**spec, **changes}),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    answer: dict[str, Any] = json.loads(line)
    return answer


@pytest.mark.parametrize(
    "codec",
    ["raw", "zstd", *(pytest.param(codec, marks=pytest.mark.full) for codec in ("blosc", "gzip"))],
)
def test_round_trip(spec: dict[str, Any], codec: str) -> None:
    spec |= {"codec": codec, "chunks": [100, 500]}
    written = run(spec, direction="write")
    read = run(spec, direction="read")
    for answer in (written, read):
        assert answer["nbytes"] == NBYTES
        # Random numbers compress a little: their exponents and signs are much alike.
        low, high = (1.0, 1.0) if codec == "raw" else (0.8, 0.99)
        assert low * NBYTES <= answer["stored_nbytes"] <= high * NBYTES
        assert answer["versions"]["zarr"].startswith("2.18.")
    assert written["result"] is None
    assert read["result"][1] == NBYTES
    assert read["rss_extra_bytes"] > NBYTES // 2  # the result itself is in it


def test_prepare_replaces_what_is_there_and_tracks_nothing(
    spec: dict[str, Any], tmp_path: Path
) -> None:
    capture = str(tmp_path / "capture.bin")
    spec |= {"direction": "read", "capture": capture}
    run(spec, phase="prepare", codec="raw", chunks=[100, 100])
    answer = run(spec, phase="prepare", codec="zstd", chunks=[500, 500])
    assert answer["stored_nbytes"] < NBYTES
    assert not Path(capture).exists()


def test_other_values_are_noticed(spec: dict[str, Any]) -> None:
    spec |= {"codec": "raw", "direction": "read"}
    run(spec, phase="prepare")
    with pytest.raises(AssertionError, match="other values came back than were written"):
        run(spec, seed=4)


@pytest.mark.parametrize("direction", ["write", "read"])
def test_capture_has_the_block_and_nothing_else(
    spec: dict[str, Any], direction: str, tmp_path: Path
) -> None:
    """Making the values, and checking them, is not counted: each would allocate them once more."""
    capture = tmp_path / "capture.bin"
    capture.write_bytes(b"of a run before")
    spec |= {"codec": "raw", "direction": direction, "capture": str(capture)}
    run(spec, phase="prepare")
    answer = run(spec)

    with memray.FileReader(capture) as reader:
        assert reader.metadata.has_native_traces
        large = [one for one in reader.get_allocation_records() if one.size >= NBYTES // 2]
        python = {frame[0] for one in large for frame in one.stack_trace()}
    assert "_values" not in python
    assert "_check" not in python
    if direction == "read":
        assert answer["result"][0] in {one.address for one in large}
    elif spec["store"] == "local":
        assert not large  # zarr 2 writes a raw chunk from the user's own memory
