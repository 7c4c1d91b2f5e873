"""``z[:]`` of an array that is one raw chunk, over TCP on loopback."""

from pathlib import Path

from benchmarks.candidates import (
    COPY,
    LOCAL_FUSED,
    Ours,
    copies,
    local_reads,
    our_reads,
    ours,
)
from benchmarks.data import Stored, put_into_folder, random_values
from benchmarks.perftest import seconds_a_message
from benchmarks.result import Row, at_least, times_as_fast
from benchmarks.scale import Scale
from benchmarks.settings import MEMORY
from benchmarks.timing import Candidate, Times, interleave
from benchmarks.ways import TCP, UCX_OVER_TCP

_OF_LOCAL = at_least(1.5)
_OF_PERFTEST = at_least(0.7)

_READS: list[Ours] = [
    *((TCP, storage, memory) for storage in ("memory", "directory") for memory in MEMORY),
    (UCX_OVER_TCP, "memory", "recycled"),
]

_TESTS = {f"ucx_perftest {test}": test for test in ("ucp_am_bw", "ucp_am_lat")}
_SETTINGS = {
    "UCX_TLS": "tcp",
    # As ucxstore sets them; UCX's default is 8K.
    "UCX_TCP_TX_SEG_SIZE": "256K",
    "UCX_TCP_RX_SEG_SIZE": "256K",
}


def measure(scale: Scale, folder: Path) -> Row:
    values = random_values(scale.shape)
    put_into_folder(folder, values, Stored(scale.shape))
    with our_reads(folder, values, Stored(scale.shape), _READS) as (reads, notes):
        times = _take_turns(scale, [*copies(values), *reads, *local_reads(folder, values)])
    target = ours(TCP, "memory", "recycled")
    better = min(_TESTS, key=lambda name: times[name].median)
    lines = [
        times_as_fast(times, name, against, bound, counts=name == target)
        for against, bound in ((LOCAL_FUSED, _OF_LOCAL), (better, _OF_PERFTEST))
        for name in (ours(*one) for one in _READS)
    ]
    lines += [
        times_as_fast(times, target, name, _OF_PERFTEST, counts=False)
        for name in _TESTS
        if name != better
    ]
    lines += [
        times_as_fast(times, ours(way, "memory", "recycled"), COPY) for way in (TCP, UCX_OVER_TCP)
    ]
    return Row(
        name="tcp",
        title=f"{scale.nbytes / 1e6:g} MB raw, one chunk, z[:], TCP on loopback",
        lines=lines,
        times=times,
        notes=[
            *notes,
            f"ucx_perftest: messages of {scale.nbytes} bytes into used memory, the mean of "
            f"{scale.perftest_messages} at a time; the target is the faster of the two tests",
        ],
    )


def _take_turns(scale: Scale, candidates: list[Candidate]) -> dict[str, Times]:
    """Time the candidates and ucx_perftest in turns, a few rounds at a time."""
    times = {name: Times() for name in [*_TESTS, *(candidate.name for candidate in candidates)]}
    for _ in range(scale.perftest_blocks):
        for name, test in _TESTS.items():
            seconds = seconds_a_message(test, scale.nbytes, scale.perftest_messages, _SETTINGS)
            times[name].seconds.append(seconds)
        # Warm up each time, since recycled memory has been released meanwhile.
        block = interleave(candidates, -(-scale.rounds // scale.perftest_blocks), warm_ups=1)
        for name, part in block.items():
            times[name].seconds += part.seconds
    return times
