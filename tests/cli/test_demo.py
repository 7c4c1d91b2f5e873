"""The whole demo with a small array, and that it notices what it should."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import zarr

from tests.eventually import eventually, nothing_happens
from ucxstore import UcxStore
from ucxstore.cli.demo import main
from ucxstore.cli.demo.reader import Task, run, run_in_child
from ucxstore.cli.demo.sample import open_sample, random_array
from ucxstore.cli.demo.table import TextTable
from ucxstore.server import Server

COMMAND = [sys.executable, "-m", "ucxstore", "demo"]


@contextmanager
def started(scratch: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Start the demo with its temporary files under `scratch`."""
    with subprocess.Popen(
        [*COMMAND, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(scratch)},
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.full  # `make check-wheel` runs it for every change
def test_the_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with started(tmp_path, "--size", "1") as process:
        out, err = process.communicate(timeout=240)
    assert (process.returncode, err) == (0, "")
    lines = out.splitlines()
    assert lines[-1] == "Everything is equal, bit by bit."
    assert max(map(len, lines)) <= 80
    assert sum(line.endswith("  equal") for line in lines) == 6
    assert sum(line.startswith("   local, ") and "local  " in line[10:] for line in lines) == 2
    assert sum(line.startswith("   TCP, ") and " tcp  " in line for line in lines) == 2
    assert sum(line.startswith("   UCX over TCP, ") and " tcp/" in line for line in lines) == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_leaves_nothing(number: signal.Signals, tmp_path: Path) -> None:
    with started(tmp_path) as process:
        assert process.stdout is not None
        process.stdout.readline()
        _, pid, *_ = process.stdout.readline().split()
        process.send_signal(number)
        _, err = process.communicate(timeout=240)
    assert process.returncode == 130
    assert err.strip() == "ucxstore demo: interrupted, everything is cleaned up"
    assert list(tmp_path.iterdir()) == []
    eventually(lambda: not Path("/proc", pid).exists())


def test_an_interrupt_that_python_drops(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Collected:
        def __del__(self) -> None:
            raise KeyboardInterrupt

    def meet_it(_: int) -> bool:
        Collected()
        nothing_happens(60)
        return True

    monkeypatch.setattr("ucxstore.cli.demo.show.show", meet_it)
    assert main([]) == 130  # and not 0, as it would be if `meet_it` had come to its end
    assert capsys.readouterr().err.strip().endswith("interrupted, everything is cleaned up")


@pytest.mark.parametrize("size", ["0", "-1", "many"])
def test_a_bad_size(size: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([f"--size={size}"])
    assert caught.value.code == 2
    assert "number of megabytes" in capsys.readouterr().err


def flip_a_bit(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 0x10
    file.write_bytes(data)


def test_the_reader_sees_a_flipped_bit_of_the_array(tmp_path: Path) -> None:
    values = random_array(1)
    root, scratch = tmp_path / "data", tmp_path / "scratch"
    scratch.mkdir()
    with Server(root, create=True) as server:
        with UcxStore(server.address) as store:
            zarr.create_array(store, data=values, chunks=values.shape, compressors=None)
        task = Task(server.address, {}, 1, str(scratch))
        report = run(task)
        assert report.differences == []
        assert report.chunks == (report.chunks[0], 0, 0, 0)
        assert 0 <= report.extra < 3  # of a small array, where what is fixed counts for much
        flip_a_bit(root / "c" / "0" / "0")
        assert run(task).differences[0].startswith(f"1 of {values.size} items")


def test_the_reader_sees_a_flipped_bit_of_the_dataset(tmp_path: Path) -> None:
    with Server(tmp_path) as server:
        with UcxStore(server.address) as store, open_sample() as dataset:
            encoding = {name: {"compressors": None} for name in dataset.variables}
            dataset.to_zarr(store, encoding=encoding, consolidated=False)
        task = Task(server.address)
        assert run(task).differences == []
        flip_a_bit(tmp_path / "longitude" / "c" / "0")
        [difference] = run(task).differences
        assert difference.startswith("longitude: 1 of 432 items")


def test_a_reader_that_fails_says_why(tmp_path: Path) -> None:
    with Server(tmp_path) as server, pytest.raises(RuntimeError, match="GroupNotFoundError"):
        run_in_child(Task(server.address))


def test_the_array_is_the_same_every_time() -> None:
    assert random_array(1).nbytes == 1_000_000
    assert np.array_equal(random_array(1), random_array(1))


def test_tables_are_aligned() -> None:
    table = TextTable("", "GB/s", "lanes")
    table.add("write", "1.5", "tcp/lo")
    table.add("read, fresh", "10.0")
    assert str(table).splitlines() == [
        "                GB/s  lanes",
        "   write         1.5  tcp/lo",
        "   read, fresh  10.0",
    ]


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_table_is_as_wide_as_the_terminal(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    table = TextTable("", "lanes", "GB/s", "")
    table.add("shared memory, write", "sysv/memory cma/memory posix/memory tcp/eth0", "1.5")
    table.add("shared memory, read", "sysv/memory", "10.0", "all equal")
    lines = str(table).splitlines()
    assert max(map(len, lines)) <= width
    assert (len(lines) > 3) == (width <= 80)
    words = ["sysv/memory", "cma/memory", "posix/memory", "tcp/eth0"]
    assert [word for line in lines for word in line.split() if word in words] == [
        *words,
        "sysv/memory",
    ]
    assert [line.endswith("all equal") for line in lines].count(True) == 1
