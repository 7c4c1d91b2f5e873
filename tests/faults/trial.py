"""A trial: three servers, eight clients that write and eight that read, and what befalls them."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from tests.faults.chunks import LIMIT
from tests.faults.history import LOSE, Operation, operations_of
from tests.faults.plague import Fault
from tests.faults.processes import ClientProcess, Process, Server
from tests.faults.workload import Task
from tests.hosts.network import Host
from ucxstore.cluster.placement import Placement

SOURCES = ("memory", "directory", "bucket")

WRITERS = READERS = 8
_PREFIX = "run"

# Of directories, somebody must say that all servers have the same one; and a server may be started
# while the bucket can't be reached.
_OPTIONS = {"memory": [], "directory": ["--shared", "--create"], "bucket": ["--no-check"]}

# Of what is between the servers and the bucket.
_ORDERS = ("refuse", "cut 0.02", "cut 0.2", "delay 0.2", "delay 3", "delay 30")
_ORDERS += ("late 6", "late 40", "deny 0.3", "deny 1")  # type: ignore[assignment]

# Seconds that servers are cut from one another: less and more than their waits for one another.
_CUT = (0.5, 20.0)

# Seconds that a request may go without progress. Less than some faults last, so that some fail.
_TIMEOUT = 3.0
_PAUSE = 0.01

# Bytes that a process of a server which decodes may take, all in all: mostly its libraries, and
# what is on its way between sixteen clients.
_PEAK = 512 << 20


class Trial:
    """The processes of a trial, and the faults that there may be.

    Parameters
    ----------
    source : {"memory", "directory", "bucket"}
    hosts : list of Host
        Three, of a server and clients each, and one for the bucket.
    folder : Path
        For outputs and records.
    disk : Path
        A small file system, for what the servers keep.
    decoded : bool
        Whether servers decode the values, which are encoded chunks then.
    """

    def __init__(
        self, source: str, hosts: list[Host], folder: Path, disk: Path, *, decoded: bool = False
    ) -> None:
        self._source = source
        self._decoded = decoded
        self._hosts = hosts[:3]
        self._bucket_host = hosts[3]
        self._folder = folder
        self._disk = disk
        self._bucket: Process | None = None
        self._accepting: Process | None = None
        self._environment: dict[str, str] = {}
        self._location = {"memory": "memory://", "directory": str(disk / "data"), "bucket": ""}[
            source
        ]
        places = [host.place for host in self._hosts]
        self._address = f"ucx://{','.join(places)}/{_PREFIX}"
        self._placement = Placement(places)
        self._all: list[Process] = []
        self._servers: list[Server] = []
        self._clients: list[ClientProcess] = []
        self._ended: list[ClientProcess] = []
        self._losses: list[tuple[int, int, int]] = []
        self._processes = 0
        self.problems: list[str] = []
        self.decoded: list[dict[str, int]] = []

    def start(self) -> None:
        """Start all processes, and wait until they have."""
        if self._source == "bucket":
            self._start_bucket(self._bucket_host)
        self._servers = [self._start_server(number) for number in range(3)]
        for server in self._servers:
            server.until_ready()
        self._clients = [self._start_client(place) for place in range(WRITERS + READERS)]
        if self._source == "memory":
            command = ["tests.faults.accepting", self._address]
            self._accepting = Process(self._hosts[0], command, self._folder / "accepting")
            self._all.append(self._accepting)
        for process in self._all:
            process.until_ready()

    def watch(self) -> None:
        """Note whoever ended without being told to."""
        for process in (*self._servers, *self._clients):
            if process.popen.poll() is not None and not process.expected_end:
                self.problems += process.problems()
                process.expected_end = True

    def finish(self) -> None:
        """End the clients, and then the servers; note what was wrong with that."""
        for client in self._clients:
            client.begin_end()
        for client in self._clients:
            self.problems += client.finish()
        for server in self._servers:
            server.until_ready()
        for number in range(3 if self._decoded else 0):
            self._check_decoded(self._hosts[number], self._servers[number])
        for server in self._servers:
            server.drain()
        for process in (*self._servers, *self._clients, *self._ended):
            self.problems += process.problems()

    def close(self) -> None:
        """End whatever is left, however it is."""
        for process in self._all:
            process.popen.kill()

    def operations(self) -> Iterator[Operation]:
        """Yield what all clients have done, and the losses, of every key that was used."""
        keys = set()
        for client in (*self._clients, *self._ended):
            for one in operations_of(client.record, client.task.process):
                keys.add(one.key)
                yield one
        for server, call, end in self._losses:
            for key in sorted(keys):
                if self._placement.servers_of([f"{_PREFIX}/{key}"]) == [server]:
                    yield Operation(-1, LOSE, key, 0, 0, call, end, "", 0.0)

    def _check_decoded(self, host: Host, server: Server) -> None:
        """See what a server has decoded since its start, and what that takes."""
        command = [sys.executable, "-m", "ucxstore", "stats", f"ucx://{host.place}", "--json"]
        done = subprocess.run(
            [*host.inside, *command], capture_output=True, text=True, timeout=60, check=True
        )
        stats = json.loads(done.stdout)
        found = {name: stats[name] for name in stats if "decode" in name}
        found |= {"cached_bytes": stats["cached_bytes"], "peak_bytes": server.peak}
        self.decoded.append(found)
        for name, limit in (("decoded", LIMIT), ("cached", LIMIT), ("peak", _PEAK)):
            if found[f"{name}_bytes"] > limit:
                self.problems.append(f"{host.place}: {name}_bytes of {found}")
        if stats["decodes_failed"]:
            self.problems.append(f"{host.place}: {stats['decodes_failed']} chunks were not decoded")

    # ---- faults ----

    def faults(self) -> list[Fault]:
        """Return the faults that may happen."""
        found = []
        for number, host in enumerate(self._hosts):
            target = f"server {number}"
            found += [
                self._standing_still(target, partial(self._servers.__getitem__, number)),
                Fault("link cut", f"link {number}", host.unplug, host.plug, (0.5, 8.0)),
                *self._restarts(target, number),
                *self._partitions(number),
            ]
        if self._source != "memory":
            found.append(self._restart_of_all())
        for place in range(WRITERS + READERS):
            target, client = f"client {place}", partial(self._clients.__getitem__, place)
            found += [
                self._standing_still(target, client, 0.1),
                Fault(
                    "client kill -9",
                    target,
                    partial(self._kill_client, place),
                    partial(self._replace_client, place),
                    (0.0, 1.0),
                    0.05,
                    possible=lambda client=client: client().is_ready,
                ),
            ]
        if self._source != "memory":
            found.append(Fault("full disk", "disk", self._fill, self._free, (1.0, 6.0)))
        if self._bucket is not None:
            for order in _ORDERS:
                begin, end = partial(self._order, order), partial(self._order, "pass")
                found.append(Fault(f"source: {order.split()[0]}", "source", begin, end, (1, 8)))
        return found

    def _standing_still(
        self, target: str, process: Callable[[], Process], weight: float = 1.0
    ) -> Fault:
        return Fault(
            f"{target.split()[0]} SIGSTOP, SIGCONT",
            target,
            lambda: process().stop(),
            lambda: process().go_on(),
            (0.05, 7.0),
            weight,
            possible=lambda: process().is_ready,
        )

    def _restarts(self, target: str, number: int) -> list[Fault]:
        kill, drain = partial(self._kill, number), partial(self._drain, number)
        start = partial(self._restart, number)
        # What memory held is lost, and somebody must accept that: without other faults.
        alone = self._source == "memory"
        weight = 0.1 if alone else 1.0

        def serves() -> bool:
            return self._servers[number].is_ready

        return [
            Fault("server kill -9", target, kill, start, (0.0, 4.0), weight, alone, serves),
            Fault("server restart", target, drain, start, (0.0, 2.0), weight, alone, serves),
        ]

    def _partitions(self, number: int) -> Iterator[Fault]:
        """Cut a server from others, in one direction or both, but not from the source."""
        host = self._hosts[number]
        for other, there in enumerate(self._hosts):
            if other == number:
                continue
            cut, mend = partial(host.cut, there.ip), partial(host.mend, there.ip)
            yield Fault("servers cut one way", f"way {number}-{other}", cut, mend, _CUT, 0.5)
        # The same directions, under targets of their own, may be cut only once at a time.
        other = (number + 1) % 3
        ways = [(number, other), (other, number)]

        def each(act: Callable[[Host, str], None]) -> None:
            for one, two in ways:
                act(self._hosts[one], self._hosts[two].ip)

        yield Fault(
            "servers cut",
            f"way {number}-{other}",
            partial(each, Host.cut),
            partial(each, Host.mend),
            _CUT,
            also=(f"way {other}-{number}",),
        )

    def _restart_of_all(self) -> Fault:
        def begin() -> None:
            for number in range(3):
                self._kill(number)

        def end() -> None:
            for number in range(3):
                self._restart(number)

        return Fault(
            "all servers kill -9",
            "server 0",
            begin,
            end,
            (0.0, 1.0),
            0.5,
            possible=lambda: all(one.is_ready for one in self._servers),
            also=("server 1", "server 2"),
        )

    def _kill(self, number: int) -> None:
        self._servers[number].kill()

    def _drain(self, number: int) -> None:
        self._servers[number].drain()

    def _restart(self, number: int) -> None:
        self.problems += self._servers[number].problems()
        self._servers[number] = self._start_server(number)
        if self._source == "memory":
            self._servers[number].until_ready()
            self._accept_loss(number)

    def _accept_loss(self, number: int) -> None:
        assert self._accepting is not None
        call = time.monotonic_ns()
        told = self._accepting.text
        self._accepting.say("accept")
        answer = self._accepting.until_more_than(told).removeprefix(told).strip()
        if answer != "accepted":
            self.problems.append(f"a loss was not accepted: {answer}")
        self._losses.append((number, call, time.monotonic_ns()))

    def _kill_client(self, place: int) -> None:
        self._clients[place].kill()

    def _replace_client(self, place: int) -> None:
        self._ended.append(self._clients[place])
        self._clients[place] = self._start_client(place)

    def _fill(self) -> None:
        with (self._disk / "filler").open("wb", buffering=0) as file, suppress(OSError):
            for size in (16 << 20, 4096):
                with suppress(OSError):
                    while True:
                        file.write(bytes(size))

    def _free(self) -> None:
        (self._disk / "filler").unlink()

    def _order(self, order: str) -> None:
        assert self._bucket is not None
        self._bucket.say(order)

    # ---- processes ----

    def _start_bucket(self, host: Host) -> None:
        folder = self._disk / "bucket"
        folder.mkdir()
        command = ["tests.faults.bucket", str(folder), f"{host.ip}:9000"]
        self._bucket = Process(host, command, self._folder / "bucket")
        self._all.append(self._bucket)
        ready = folder / "ready.json"
        bucket = self._bucket
        bucket.until_ready()
        assert ready.exists(), bucket.text
        told = json.loads(ready.read_text())
        self._location, self._environment = told["location"], told["environment"]

    def _start_server(self, number: int) -> Server:
        options = list(_OPTIONS[self._source])
        if self._decoded:
            options += ["--decoded", str(LIMIT)]
        if self._decoded and self._source == "bucket":
            options += ["--cache", str(LIMIT)]
        output = self._folder / f"server-{number}"
        server = Server(self._hosts[number], self._location, options, output, self._environment)
        self._all.append(server)
        return server

    def _start_client(self, place: int) -> ClientProcess:
        self._processes += 1
        task = Task(
            process=self._processes,
            address=self._address,
            writes=place < WRITERS,
            own=place,
            timeout=_TIMEOUT,
            pause=_PAUSE,
            decoded=self._decoded,
        )
        client = ClientProcess(self._hosts[place % 3], task, self._folder)
        self._all.append(client)
        return client
