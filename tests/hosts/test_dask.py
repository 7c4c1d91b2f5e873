"""A Dask cluster whose scheduler, workers and client are on hosts of their own."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tests.hosts.conftest import RunOn
from tests.hosts.network import Host

CLIENT = """
import dask, dask.array as da
from distributed import Client
from ucxstore.dask import deploy
values = np.random.default_rng(5).random((400, 300), dtype="f4")
with Client({scheduler!r}, timeout=60) as client:
    client.wait_for_workers(2, timeout=60)
    with deploy(client) as deployed:
        store = deployed.store("run", strict=True)
        z = zarr.create_array(
            store, name="a", shape=values.shape, chunks=(50, 60), dtype="f4", fill_value=-1
        )
        da.from_array(values, chunks=(100, 120)).store(z, lock=False)
        np.testing.assert_array_equal(da.from_zarr(z).compute(), values)
        np.testing.assert_array_equal(z[...], values)
        print(*sorted(server.host for server in store.servers))
        print(*store.stats()["lanes"])
"""


@contextmanager
def running(host: Host, *arguments: str) -> Iterator[None]:
    """Run a command of Dask's on a host, until the end of it."""
    command = [*host.inside, sys.executable, "-m", "dask", *arguments]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield
        finally:
            host.end(process.pid)


def test_a_cluster_of_two_hosts(hosts: Sequence[Host], run_on: RunOn) -> None:
    scheduling, first, second, asking = hosts
    scheduler = f"tcp://{scheduling.ip}:8786"
    options = ["--nthreads=1", "--no-nanny", "--no-dashboard", "--death-timeout=60"]
    with (
        running(scheduling, "scheduler", f"--host={scheduling.ip}", "--no-dashboard"),
        running(first, "worker", scheduler, f"--host={first.ip}", *options),
        running(second, "worker", scheduler, f"--host={second.ip}", *options),
    ):
        code = CLIENT.format(scheduler=scheduler)
        servers, lanes = run_on(asking, first.address, code).end(90).splitlines()
    assert servers.split() == [first.ip, second.ip]
    assert set(lanes.replace("/", " ").split()) == {"tcp"}
