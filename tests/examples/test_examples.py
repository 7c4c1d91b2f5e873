"""The examples run as they are."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import zarr

from ucxstore import UcxStore
from ucxstore.server import Server

EXAMPLES = Path(__file__).parents[2] / "examples"


# What Dask says as a cluster is closed on a busy machine: of workers that take long to end, or that
# miss the scheduler.
SLOW_WORKER = re.compile(
    r".*Worker process still alive after .* seconds, killing\n"
    r"|.* - distributed\.worker - ERROR - Failed to communicate with scheduler during heartbeat\.\n"
    r"Traceback \(most recent call last\):\n(?:(?: .*)?\n)*?\S*Error: .*\n"
    r"(?:\nThe above exception was the direct cause of the following exception:\n\n"
    r"Traceback \(most recent call last\):\n(?:(?: .*)?\n)*?\S*Error: .*\n)?"
)


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=EXAMPLES.parent,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    done.stderr = SLOW_WORKER.sub("", done.stderr)
    return done


@pytest.mark.full
def test_train_reader() -> None:
    done = run("examples/train_reader.py")
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(
        r"4 processes read 3\.4 GB in .* s, .* GB/s together; every sample was right\n",
        done.stdout,
    )


def test_train_reader_at_a_server(memory_server: Server, prefix: str) -> None:
    address = f"{memory_server.address}/{prefix}"
    done = run("examples/train_reader.py", address, "--samples", 20, "--readers", 7, "--batches", 3)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("7 processes read 0.4 GB")
    samples = zarr.open_array(UcxStore(address), path="samples", mode="r")
    assert samples.shape == (20, 512, 512)
    np.testing.assert_array_equal(samples[:, 0, 0], np.arange(20))


@pytest.mark.parametrize("arguments", [["--samples", 3], ["ucx://127.0.0.1"]])
def test_train_reader_that_cannot(arguments: list[object]) -> None:
    assert run("examples/train_reader.py", *arguments).returncode != 0


@pytest.mark.full
def test_shared_cache() -> None:
    done = run("-m", "examples.shared_cache", "--side", 1024)
    assert (done.returncode, done.stderr) == (0, "")
    *results, requests = done.stdout.splitlines()
    assert [line.partition(" in ")[0] for line in results] == [
        "largest: 1",
        "smallest: 0",
        "sum: 524288",
    ]
    # zarr.json, and four chunks.
    assert re.search(r" saw 5 requests for 5 objects, which were read three times$", requests)


@pytest.mark.parametrize("way", [[], ["--pieces"]])
def test_rechunk(way: list[str]) -> None:
    done = run("examples/rechunk.py", "--steps", 50, "--progress", *way)
    assert done.returncode == 0
    assert re.fullmatch(r"rechunk .* 100% .*\n", done.stderr)
    assert re.fullmatch(
        r"47\.68 MiB in chunks of \(20, 500, 500\) became chunks of \(50, 50, 100\) in .* s; "
        r"every number is right\n",
        done.stdout,
    )
