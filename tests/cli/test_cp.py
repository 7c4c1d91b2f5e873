"""``ucxstore cp`` between every two kinds of locations; what it does when that cannot be."""

import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import zarr

from tests.cli.command import COMMAND
from tests.cli.command import run_process as run
from tests.cli.trees import Named, everything, fill
from tests.eventually import eventually
from ucxstore import UcxStore
from ucxstore.server import Server

pytestmark = pytest.mark.usefixtures("zarr_config")

LOCATIONS = ["directory", "server", "s3"]
CIRCLE = [("directory", "server"), ("server", "s3"), ("s3", "directory")]


@pytest.fixture
def values() -> dict[str, bytes]:
    random = np.random.default_rng(5)
    sizes = {
        "zarr.json": 300,
        "a/zarr.json": 400,
        "a/c/0/0": 0,
        "a/c/0/1": 100_000,
        "a/c/1/0": 100_000,
        "ä b/100%": 10,
        "big": 20_000_000,  # several parts of an object, and larger than a group
    } | {f"small/c/{number}": number for number in range(60)}
    return {key: random.bytes(size) for key, size in sizes.items()}


# Each is read and written for every change; with each of the others, in full runs.
@pytest.mark.parametrize(
    ("source", "destination"),
    [
        pair if pair in CIRCLE else pytest.param(*pair, marks=pytest.mark.full)
        for pair in product(LOCATIONS, LOCATIONS)
    ],
)
def test_between_locations(
    source: str, destination: str, values: dict[str, bytes], named: Named
) -> None:
    first, second = named(source, "first"), named(destination, "second")
    fill(first, values)
    done = run("cp", first, second)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"copied 67 values, 20\.\d MB in .* s \(.*/s\)\n", done.stdout)
    assert everything(second) == values
    again = run("cp", first, second)
    assert again.stdout.startswith("copied 0 values, 0 B in ")
    assert again.stdout.endswith("; 67 were there\n")


def test_what_has_changed_is_copied(named: Named, values: dict[str, bytes]) -> None:
    first, second = named("directory", "first"), named("directory", "second")
    fill(first, values)
    assert run("cp", "--quiet", first, f"file://{second}").returncode == 0
    Path(first, "a/c/0/1").write_bytes(b"shorter")
    Path(first, "a/c/1/0").write_bytes(bytes(100_000))  # and newer
    os.utime(Path(first, "big"), (1, 1))  # older
    done = run("cp", first, second)
    assert done.stdout.startswith("copied 2 values, 100 kB")
    assert everything(second) == everything(first)


def test_all_copies_what_is_there(named: Named) -> None:
    first, second = named("directory", "first"), named("server", "second")
    fill(first, {"a": b"1"})
    fill(second, {"a": b"2"})  # a server knows no times: the size is all there is to go by
    assert run("cp", first, second).stdout.startswith("copied 0 values")
    assert run("cp", "--all", first, second).stdout.startswith("copied 1 value, ")
    assert everything(second) == {"a": b"1"}


def test_an_array_can_be_read_where_it_was_copied_to(named: Named) -> None:
    first, second = named("directory", "first"), named("server", "second")
    wanted = np.random.default_rng(2).random((100, 100))
    zarr.create_array(first, data=wanted, chunks=(10, 10))
    assert run("cp", "--jobs", 3, first, second).returncode == 0
    np.testing.assert_array_equal(zarr.open_array(UcxStore(second), mode="r")[:], wanted)


def test_a_copy_that_was_killed_goes_on(named: Named) -> None:
    """When the process dies, a key has its whole value, or is missing."""
    first, second = named("directory", "first"), named("directory", "second")
    values = {f"c/{number}": bytes([number]) * 8_000_000 for number in range(40)}
    fill(first, {**values, "zarr.json": b"{}"})
    with subprocess.Popen([*COMMAND, "cp", "--jobs", "2", first, second]) as process:
        eventually(lambda: len(list(Path(second).glob("c/*"))) > 3 or process.poll() is not None)
        process.kill()
    assert process.returncode == -signal.SIGKILL, "it was faster than the test"
    there = {
        key: value for key, value in everything(second).items() if not re.search(r"#\d+$", key)
    }
    assert 0 < len(there) < len(values)
    assert all(values[key] == value for key, value in there.items())
    done = run("cp", first, second)
    assert done.returncode == 0
    assert f"; {len(there)} were there" in done.stdout
    found = everything(second)
    assert {key: found[key] for key in values} == values


def test_a_copy_that_is_interrupted(named: Named) -> None:
    first, second = named("directory", "first"), named("server", "second")
    values = {f"c/{number}": bytes([number]) * 8_000_000 for number in range(40)}
    fill(first, values)
    with subprocess.Popen(
        [*COMMAND, "cp", "--jobs", "1", first, second], stderr=subprocess.PIPE, text=True
    ) as process:
        eventually(lambda: everything(second) or process.poll() is not None)
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=240)
    assert (process.returncode, error) == (130, "ucxstore cp: interrupted\n")
    assert all(values[key] == value for key, value in everything(second).items())


def test_a_read_only_server(named: Named, tmp_path: Path) -> None:
    first = named("directory", "first")
    fill(first, {"a/c/0": b"x"})
    (tmp_path / "served").mkdir()
    with Server(tmp_path / "served", read_only=True) as server:
        done = run("cp", first, f"{server.address}/b")
    assert done.returncode == 4
    [line] = done.stderr.splitlines()
    assert line.startswith("ucxstore cp: ")
    assert "b/a/c/0" in line
    assert "read" in line


def test_a_directory_that_cannot_be_written(named: Named) -> None:
    first, second = named("directory", "first"), Path(named("directory", "second"))
    fill(first, {"a/c/0": b"x"})
    second.mkdir()
    (second / "a").write_text("a file where a folder should be")
    done = run("cp", first, second)
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert f"{second}: a/c/0: " in line


@pytest.mark.parametrize("side", ["source", "destination"])
def test_a_link_that_leads_out_of_a_directory(side: str, named: Named, tmp_path: Path) -> None:
    first, second = Path(named("directory", "first")), Path(named("directory", "second"))
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "0").write_bytes(b"old")
    if side == "source":
        first.mkdir()
        (first / "c").symlink_to(outside)
    else:
        fill(str(first), {"c/0": b"new value"})
        second.mkdir()
        (second / "c").symlink_to(outside)
    done = run("cp", first, second)
    assert done.returncode == 1
    assert "c/0: a symbolic link leads out of the directory" in done.stderr
    assert (outside / "0").read_bytes() == b"old"
    assert list(second.glob("*/*")) == ([] if side == "source" else [second / "c/0"])


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["/no/such/place", "/tmp/x"], 2, "/no/such/place: there is no such file or directory"),
        (["gopher://x", "/tmp/x"], 2, "gopher://x"),
        (["ucx://127.0.0.1", "/tmp/x"], 2, "names no port"),
        (["/tmp", "memory://"], 2, "memory://: this memory would be lost"),
        (["memory:///x", "/tmp/x"], 2, "memory:///x: this memory would be lost"),
        (["--jobs", "0", "/tmp", "/tmp/x"], 2, "--jobs: 0"),
        (["ucx://127.0.0.1:1/x", "ucx://127.0.0.1:1/y", "--timeout", "0.2"], 5, "127.0.0.1:1"),
    ],
)
def test_what_is_no_location(arguments: list[str], status: int, message: str) -> None:
    done = run("cp", *arguments)
    assert done.returncode == status
    [line] = done.stderr.splitlines()
    assert line.startswith("ucxstore cp: ")
    assert message in line


@pytest.mark.parametrize("kind", LOCATIONS)
def test_an_empty_source(kind: str, named: Named, tmp_path: Path) -> None:
    """It fails, and makes nothing at the destination, not even an empty folder."""
    (tmp_path / "empty").mkdir()
    source = tmp_path / "empty" if kind == "directory" else named(kind, "x")
    for destination in (tmp_path / "y", tmp_path / "y/z", f"{tmp_path}/y/", f"file://{tmp_path}/y"):
        done = run("cp", source, destination)
        assert (done.returncode, done.stdout) == (3, "")
        assert done.stderr == f"ucxstore cp: {source}: no values found\n"
        assert not (tmp_path / "y").exists()


@pytest.mark.parametrize("there", LOCATIONS)
@pytest.mark.parametrize("kind", LOCATIONS)
def test_one_value(kind: str, there: str, named: Named) -> None:
    """It gets the name of the destination, or keeps its own in a folder; as `aws s3 cp` does it."""
    source, destination = named(kind, "first"), named(there, "second")
    fill(source, {"a/ä b": b"value", "a/other": b"x"})
    done = run("cp", f"{source}/a/ä b", f"{destination}/renamed")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("copied 1 value, 5 B in ")
    assert run("cp", f"{source}/a/ä b", f"{destination}/folder/").returncode == 0
    assert everything(destination) == {"renamed": b"value", "folder/ä b": b"value"}


def test_one_value_over_another(named: Named) -> None:
    """It is named, so it is copied, whatever its size: a server knows no times."""
    first, second = named("directory", "first"), named("server", "second")
    fill(first, {"a": b"new"})
    fill(second, {"b": b"old"})
    assert run("cp", f"{first}/a", f"{second}/b").stdout.startswith("copied 1 value, ")
    assert everything(second) == {"b": b"new"}


def test_one_value_to_what_can_only_be_a_folder(named: Named, tmp_path: Path) -> None:
    source = named("server", "first")
    fill(source, {"a/key": b"value"})
    (tmp_path / "there").mkdir()
    assert run("cp", f"{source}/a/key", tmp_path / "there").returncode == 0
    assert everything(str(tmp_path / "there")) == {"key": b"value"}
    with Server("memory://") as server:
        assert run("cp", tmp_path / "there/key", server.address).returncode == 0
        assert everything(server.address) == {"key": b"value"}
    s3 = named("s3", "first")
    bucket = s3.partition("://")[2].partition("/")[0]
    assert run("cp", f"{source}/a/key", f"s3://{bucket}").returncode == 0
    assert run("cp", f"s3://{bucket}/key", tmp_path / "again").returncode == 0
    assert (tmp_path / "again").read_bytes() == b"value"


def test_a_name_with_a_slash_at_its_end_is_a_folder(named: Named, tmp_path: Path) -> None:
    source, file = named("server", "first"), tmp_path / "file"
    fill(source, {"key": b"value"})
    file.write_bytes(b"value")
    assert run("cp", f"{source}/key/", tmp_path / "x").returncode == 3
    assert run("cp", f"{file}/", tmp_path / "x").returncode == 2
    done = run("cp", source, file)
    assert done.returncode == 1
    assert f"{file}: " in done.stderr
    assert "it is a file, not a directory" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]
    assert file.read_bytes() == b"value"


@pytest.mark.parametrize("target", ["../out", "a/../../out"])
def test_one_value_stays_in_the_server(target: str, named: Named, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"value")
    done = run("cp", file, f"{named('server', 'second')}/{target}")
    assert done.returncode != 0
    assert everything(named("server", "second")) == {}


def shown_on_a_terminal(command: Sequence[str | Path]) -> bytes:
    ours, theirs = pty.openpty()
    with subprocess.Popen(command, stderr=theirs, env={**os.environ, "TERM": "xterm"}) as process:
        os.close(theirs)
        shown = b""
        with suppress(OSError):  # the other end was closed
            while some := os.read(ours, 1000):
                shown += some
        os.close(ours)
        assert process.wait(60) == 0
    return shown


def test_a_bar_on_a_terminal(named: Named) -> None:
    first, second = named("directory", "first"), named("directory", "second")
    fill(first, {"a": bytes(1000)})
    assert b"100%" in shown_on_a_terminal([*COMMAND, "cp", first, second])


def test_without_rich_values_are_copied_all_the_same(named: Named) -> None:
    first, second = named("directory", "first"), named("directory", "second")
    fill(first, {"a": bytes(1000)})
    code = (
        "import sys; sys.modules['rich'] = None; from ucxstore.cli import main; main(sys.argv[1:])"
    )
    shown = shown_on_a_terminal([sys.executable, "-c", code, "cp", first, second])
    assert shown.strip() == b'ucxstore: warning: progress needs rich: pip install "ucxstore[tools]"'
    assert everything(second) == {"a": bytes(1000)}
