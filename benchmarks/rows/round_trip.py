"""``get_sync`` of a small value."""

from pathlib import Path

from zarr.core.buffer import cpu

from benchmarks.children import run
from benchmarks.result import Row, below, figure
from benchmarks.scale import Scale
from benchmarks.timing import Times
from ucxstore import Server, UcxStore

_ROUND_TRIP = below(60)  # us

_KEY = "small"
_NBYTES = 4096
_TRANSPORTS: dict[str, dict[str, str]] = {"shared memory": {}, "TCP": {"TLS": "tcp"}}
_TARGET = "shared memory, blocking"


def measure(scale: Scale, folder: Path) -> Row:
    times: dict[str, Times] = {}
    medians: dict[str, list[float]] = {}
    for _ in range(scale.call_rounds):
        for transport, ucx in _TRANSPORTS.items():
            for progress in ("blocking", "polling"):
                name = f"{transport}, {progress}"
                seconds = _calls(ucx, progress, scale.calls)
                times.setdefault(name, Times()).seconds += seconds
                medians.setdefault(name, []).append(Times(seconds).median)
    return Row(
        name="round-trip",
        title=f"get_sync of {_NBYTES} bytes, round trip",
        lines=[
            figure(
                name,
                [second * 1e6 for second in part.seconds],
                "us",
                _ROUND_TRIP,
                counts=name == _TARGET,
            )
            for name, part in times.items()
        ],
        times=times,
        notes=[
            f"{name}: medians of the processes "
            + ", ".join(f"{median * 1e6:.1f}" for median in medians[name])
            + f" us; 99 % within {times[name].percentile(99) * 1e6:.1f} us"
            for name in times
        ],
    )


def _calls(ucx: dict[str, str], progress: str, calls: int) -> list[float]:
    """Time calls between two new processes, which end here: processes that poll disturb others."""
    with Server.spawn("memory://", ucx=ucx, progress=progress) as server:
        with UcxStore(server.address, ucx=ucx, select_pipeline=False) as store:
            store.set_sync(_KEY, cpu.Buffer.from_bytes(bytes(_NBYTES)))
        seconds: list[float] = run(
            "calls",
            address=server.address,
            key=_KEY,
            nbytes=_NBYTES,
            calls=calls,
            ucx=ucx,
            progress=progress,
        )
        return seconds
