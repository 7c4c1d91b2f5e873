"""The progress bar of `ucxstore.progress`."""

import os
import subprocess
import sys
import threading

import numpy as np
import pytest
import zarr

import ucxstore
from tests.fixtures import memory_alone as memory_alone
from ucxstore import UcxStore
from ucxstore.base import meter

pytestmark = pytest.mark.usefixtures("zarr_config")


class Seen:
    """A bar that keeps what it was told."""

    def __init__(self) -> None:
        self.steps: list[tuple[int, int]] = []
        self.closed = False

    def update(self, moved: int, planned: int) -> None:
        assert not self.closed
        self.steps.append((moved, planned))

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    """The bar of the last block that was opened."""
    bar = Seen()

    def reopened(*_: object) -> Seen:
        bar.steps, bar.closed = [], False
        return bar

    monkeypatch.setattr(meter, "open_bar", reopened)
    return bar


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meter, "PART_BYTES", 4000)


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("layout", ["raw", "zstd", "shards", "texts"])
def test_bytes_moved_of_bytes_planned(ucx_store: UcxStore, seen: Seen, layout: str) -> None:
    options = {
        "raw": {"compressors": None, "chunks": 1000},
        "zstd": {"chunks": 1000},
        "shards": {"chunks": 500, "shards": 1000},
        "texts": {"chunks": 1000},
    }[layout]
    values: np.ndarray = np.arange(10_500, dtype="i4")
    if layout == "texts":
        values = values.astype("U6")
    z = zarr.create_array(ucx_store, shape=10_500, dtype=values.dtype, **options)
    with ucxstore.progress() as counted:
        z[:] = values
        assert (counted.moved, counted.planned) == (values.nbytes, values.nbytes)
        steps = len(seen.steps)
        np.testing.assert_array_equal(z[:], values)
        assert (counted.moved, counted.planned) == (2 * values.nbytes, 2 * values.nbytes)
        for _ in range(2):
            assert z[3] == values[3]
    assert counted.moved == counted.planned == 2 * (values.nbytes + values.itemsize)
    assert seen.closed
    assert steps == 1 + 11  # of a part for each chunk, and the last one
    assert seen.steps == sorted(seen.steps)
    before = len(seen.steps)
    z[:] = values  # nobody looks any more
    assert len(seen.steps) == before
    assert meter.active == ()


def test_every_selection_is_counted_as_what_it_selects(ucx_store: UcxStore, seen: Seen) -> None:
    values = np.arange(60 * 70, dtype="f8").reshape(60, 70)
    z = zarr.create_array(ucx_store, data=values, chunks=(16, 16))
    mask = values % 7 == 0
    points = [3, 40, 59], [69, 0, 12]
    reads = [
        lambda: z[...],
        lambda: z[3],
        lambda: z[5:50:3, 60],
        lambda: z[10, 10],
        lambda: z.oindex[[1, 17, 40], 2:30],
        lambda: z.oindex[[1, 17, 40], [0, 69]],
        lambda: z.vindex[points],
        lambda: z.get_mask_selection(mask),
        lambda: z.blocks[1, 1],
    ]
    for read in reads:
        with ucxstore.progress() as counted:
            expected = np.asarray(read()).nbytes
        assert counted.planned == counted.moved == expected
    with ucxstore.progress() as counted:
        z[...] = 1  # one value, and yet all of them are written
        z.oindex[[3, 4], :] = 2
    assert counted.moved == values.nbytes + 2 * 70 * 8


def test_reads_of_any_thread_are_counted(ucx_store: UcxStore, seen: Seen) -> None:
    z = zarr.create_array(ucx_store, data=np.arange(1000, dtype="i2"), chunks=100)
    with ucxstore.progress() as counted:
        threads = [threading.Thread(target=lambda: z[:]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert counted.moved == counted.planned == 4 * 2000


def test_what_goes_on_after_the_block_is_counted_and_not_shown(seen: Seen) -> None:
    with ucxstore.progress() as counted:
        pass
    counted.add(moved=3)
    assert (counted.moved, seen.steps) == (3, [])


@pytest.mark.usefixtures("small_parts")
def test_a_bar_that_fails_is_left_out(
    ucx_store: UcxStore,
    seen: Seen,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(*_: object) -> None:
        raise OSError("the terminal is gone")

    values = np.arange(10_000, dtype="i4")
    z = zarr.create_array(ucx_store, data=values, chunks=1000)
    monkeypatch.setattr(seen, "update", fail)
    with ucxstore.progress() as counted:
        np.testing.assert_array_equal(z[:], values)
        assert seen.closed
    assert counted.moved == values.nbytes
    assert caplog.text.count("the terminal is gone") == 1
    monkeypatch.undo()
    monkeypatch.setattr(meter, "open_bar", lambda *_: seen)
    monkeypatch.setattr(seen, "close", fail)
    with ucxstore.progress():
        pass
    assert caplog.text.count("the terminal is gone") == 2


@pytest.mark.usefixtures("small_parts")
def test_a_failure_ends_the_bar(ucx_store: UcxStore, seen: Seen) -> None:
    z = zarr.create_array(ucx_store, data=np.arange(10_000, dtype="i4"), chunks=1000)
    ucx_store.set_sync("c/7", zarr.core.buffer.cpu.Buffer.from_bytes(b"no chunk"))
    with pytest.raises(RuntimeError), ucxstore.progress():  # zstd's
        z[:]
    assert seen.steps[-1] == (7 * 4000, 40_000)
    assert seen.closed
    assert meter.active == ()


def test_a_forked_child_shows_no_bar() -> None:
    script = """
import os
from ucxstore import progress
from ucxstore.base import meter

class Bar:
    def close(self): pass

meter.open_bar = lambda *_: Bar()
with progress():
    pid = os.fork()
    if pid == 0:
        os._exit(len(meter.active))
    print(os.waitpid(pid, 0)[1], len(meter.active))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )
    assert (done.stdout, done.stderr) == ("0 1\n", "")


def test_the_bar_is_drawn(ucx_store: UcxStore, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("rich")
    z = zarr.create_array(ucx_store, data=np.zeros(500_000, "f4"), compressors=None)
    with ucxstore.progress("read [b]it"):
        z[:]
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "read [b]it" in shown.err
    assert "100%" in shown.err
    assert "2.0" in shown.err  # MB
    with pytest.raises(KeyError), ucxstore.progress():
        raise KeyError


def test_what_is_printed_to_a_file_gets_there() -> None:
    """Also where the bar is in a terminal."""
    pytest.importorskip("rich")
    script = """
from ucxstore.base import meter
bar = meter.open_bar("x")
bar.update(1, 2)
print("a result")
bar.close()
"""
    terminal, stderr = os.openpty()
    environment = {**os.environ, "TERM": "xterm"}
    done = subprocess.run(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=stderr,
        env=environment,
        timeout=60,
    )
    os.close(stderr)
    shown = os.read(terminal, 1 << 16)
    os.close(terminal)
    assert (done.returncode, done.stdout) == (0, b"a result\n")
    assert b"50%" in shown


def test_without_rich_it_says_what_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [one for one in sys.modules if one.partition(".")[0] == "rich"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "rich", None)
    with (
        pytest.raises(ImportError, match=r'needs rich: pip install "ucxstore\[tools\]"'),
        ucxstore.progress(),
    ):
        pass
    assert meter.active == ()


def test_a_meter_says_how_far_it_is(seen: Seen) -> None:
    with ucxstore.progress() as counted:
        assert repr(counted) == "Meter(0 B of 0 B)"
        counted.add(planned=10_000_000)
        counted.add(moved=2_500_000)
        assert repr(counted) == "Meter(2.5 MB of 10.0 MB)"
