"""The processor time of a connected client and server that are idle."""

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from zarr.core.buffer import cpu

from benchmarks.children import command
from benchmarks.process import cpu_seconds
from benchmarks.result import Row, below, figure
from benchmarks.scale import Scale
from benchmarks.ways import WAYS, Way

_OF_A_CORE = below(1)  # per cent

_KEY = "small"
_SETTLE_SECONDS = 1.0


def measure(scale: Scale, folder: Path) -> Row:
    with ExitStack() as stack:
        pids: dict[str, int] = {}
        for way in WAYS:
            server = stack.enter_context(way.serve("memory://"))
            with way.open(server.address) as store:
                store.set_sync(_KEY, cpu.Buffer.from_bytes(bytes(4096)))
                way.check(store)
            client = stack.enter_context(_idle_client(server.address, way))
            pids[f"idle client, {way.name}"] = client.pid
            pids[f"idle server, {way.name}"] = server.pid
        time.sleep(_SETTLE_SECONDS)
        windows = [_watch(pids, scale.idle_seconds) for _ in range(scale.idle_windows)]
    return Row(
        name="idle",
        title=f"processor time of idle processes, over {scale.idle_seconds:g} s",
        lines=[
            figure(name, [window[name] for window in windows], "% of a core", _OF_A_CORE)
            for name in pids
        ],
    )


def _watch(pids: dict[str, int], seconds: float) -> dict[str, float]:
    """Return the percentage of a core that each process uses."""
    start = time.monotonic()
    before = {name: cpu_seconds(pid) for name, pid in pids.items()}
    time.sleep(seconds)
    elapsed = time.monotonic() - start
    return {name: 100 * (cpu_seconds(pids[name]) - before[name]) / elapsed for name in pids}


@contextmanager
def _idle_client(address: str, way: Way) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        command("idle"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            task = {"address": address, "key": _KEY, "client": way.of_client}
            process.stdin.write(json.dumps(task) + "\n")
            process.stdin.flush()
            if process.stdout.readline() != "ready\n":
                raise RuntimeError("the idle client did not start")
            yield process
        finally:
            process.kill()
