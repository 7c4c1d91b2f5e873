"""Whole jobs: new processes that read an array, each by a way of ours and by zarr's own store."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.candidates import LOCAL_FUSED, ZARRS
from benchmarks.data import Stored, Values, put_into_folder, put_into_server
from benchmarks.process import cpu_seconds
from benchmarks.settings import FUSED, ZARRS_PIPELINE
from benchmarks.timing import Times
from benchmarks.together import run_all
from benchmarks.ways import WAYS

OURS = {way: f"ucxstore, {way.name}" for way in WAYS}
CPU = "processor time: {}"


class _Job(NamedTuple):
    task: dict[str, Any]
    server: int | None = None  # its process, whose time counts, too


def measure_jobs(
    values: Values, stored: Stored, folder: Path, processes: int, epochs: int, rounds: int
) -> dict[str, Times]:
    """Return the times of a job by each candidate, and the processor time, as ``CPU`` names it."""
    with _jobs(values, stored, folder) as jobs:
        times = {name: Times() for job in jobs for name in (job, CPU.format(job))}
        names = [*jobs]
        for number in range(rounds + 1):
            first = number % len(names)
            for name in names[first:] + names[:first]:
                seconds, used = _run(jobs[name], processes, epochs)
                if number > 0:  # the first one fills the page cache
                    times[name].seconds.append(seconds)
                    times[CPU.format(name)].seconds.append(used)
    return times


def _run(job: _Job, processes: int, epochs: int) -> tuple[float, float]:
    before = cpu_seconds(job.server) if job.server else 0.0
    seconds, used = run_all("epochs", [{**job.task, "epochs": epochs}] * processes)
    return seconds, used + (cpu_seconds(job.server) - before if job.server else 0.0)


@contextmanager
def _jobs(values: Values, stored: Stored, folder: Path) -> Iterator[dict[str, _Job]]:
    put_into_folder(folder, values, stored)
    some = float(values[::100, ::100].sum(dtype="f8"))
    with ExitStack() as stack:
        jobs = {}
        for way, name in OURS.items():
            server = stack.enter_context(way.serve("memory://"))
            put_into_server(server.address, values, stored, **way.of_client)
            task = {"location": server.address, "client": way.of_client, "sum": some}
            jobs[name] = _Job(task, server.pid)
        for name, pipeline in ((LOCAL_FUSED, FUSED), (ZARRS, ZARRS_PIPELINE)):
            jobs[name] = _Job({"location": str(folder), "pipeline": pipeline, "sum": some})
        yield jobs
