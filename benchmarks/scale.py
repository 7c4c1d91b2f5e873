"""Sizes and repetitions of a full run and of a quick one, whose figures mean nothing."""

from dataclasses import dataclass

from ucxstore.client.idle import IDLE_SECONDS

# The grid's chunks: 1 MB of float32, in rows of 2 kB of the array.
GRID_CHUNK = (500, 500)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    side: int  # of the square float32 array; 5,000 is 100 MB
    rounds: int  # of interleaved transfers that take milliseconds
    directory_writes: int  # fewer: each leaves an array's size of dirty pages to the disk
    perftest_blocks: int
    perftest_messages: int
    small_chunks: int  # of 64 KiB
    small_rounds: int
    points: int  # random ones
    arrays: int  # in a group
    served_bytes: int
    rechunked: tuple[int, int]  # length in time, and side in space, of 4-byte numbers
    rechunks: int
    workers: int  # of Dask
    memory_repeats: int  # of a process whose memory is measured
    calls: int  # round trips in each process
    call_rounds: int  # such processes
    idle_seconds: float
    idle_windows: int
    cluster_side: int  # of the square float32 array that a cluster reads
    cluster_rounds: int
    clients: int  # processes that get values at the same time
    client_seconds: float
    client_windows: int
    connects: int  # processes that connect at the same moment
    connect_rounds: int
    job_rounds: int  # of a job of four processes
    start_rounds: int  # of a process that reads a small array
    held_bytes: int  # of an array that several processes hold
    loaders: int  # processes of a training job, at the most
    loaded_bytes: int  # of the array that they read
    spread_workers: int  # of Dask, which all read from one another
    spread_side: int  # of the square array of 4-byte numbers
    spread_slabs: int  # of its rows, and of its columns
    spread_idle_seconds: float
    cost_requests: int
    cost_rounds: int
    held_connections: int
    patience_seconds: float  # how long to wait for an idle machine

    @property
    def shape(self) -> tuple[int, int]:
        return self.side, self.side

    @property
    def spread_rests(self) -> bool:
        """Whether clients close idle connections in that time."""
        return self.spread_idle_seconds > IDLE_SECONDS

    @property
    def nbytes(self) -> int:
        return 4 * self.side**2


FULL = Scale(
    side=5000,
    rounds=24,
    directory_writes=9,
    perftest_blocks=6,
    perftest_messages=10,
    small_chunks=10_000,
    small_rounds=7,
    points=1000,
    arrays=1000,
    served_bytes=1 << 30,
    rechunked=(2000, 500),
    rechunks=2,
    workers=2,
    memory_repeats=3,
    calls=2000,
    call_rounds=5,
    idle_seconds=5.0,
    idle_windows=3,
    cluster_side=16000,
    cluster_rounds=2,
    clients=64,
    client_seconds=3.0,
    client_windows=3,
    connects=200,
    connect_rounds=2,
    job_rounds=5,
    start_rounds=9,
    held_bytes=10**9,
    loaders=16,
    loaded_bytes=1 << 30,
    spread_workers=16,
    spread_side=20480,
    spread_slabs=64,
    spread_idle_seconds=75.0,
    cost_requests=1000,
    cost_rounds=3,
    held_connections=100,
    patience_seconds=30.0,
)

QUICK = Scale(
    side=3000,  # at least 32 MiB: malloc does not return smaller blocks to the kernel
    rounds=3,
    directory_writes=2,
    perftest_blocks=1,
    perftest_messages=2,
    small_chunks=200,
    small_rounds=2,
    points=50,
    arrays=20,
    served_bytes=64 << 20,
    rechunked=(200, 200),
    rechunks=1,
    workers=2,
    memory_repeats=1,
    calls=100,
    call_rounds=1,
    idle_seconds=1.0,
    idle_windows=1,
    cluster_side=2000,
    cluster_rounds=1,
    clients=4,
    client_seconds=0.3,
    client_windows=1,
    connects=8,
    connect_rounds=1,
    job_rounds=1,
    start_rounds=1,
    held_bytes=128 << 20,
    loaders=2,
    loaded_bytes=64 << 20,
    spread_workers=3,
    spread_side=1024,
    spread_slabs=8,
    spread_idle_seconds=0.0,
    cost_requests=64,
    cost_rounds=1,
    held_connections=4,
    patience_seconds=0.0,
)
