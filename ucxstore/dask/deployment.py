"""`deploy`: start a server in every worker of a Dask cluster, and make stores over them."""

import hashlib
import os
import secrets
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self, Unpack, cast

from dask.utils import parse_bytes
from distributed import Client, KilledWorker

from ucxstore.base import logs
from ucxstore.base.address import Address, HostPort
from ucxstore.base.errors import (
    ClusterError,
    ConnectError,
    EvictedError,
    RequestTimeoutError,
    ScratchEndedError,
    ServerLostError,
)
from ucxstore.base.meter import Meter, check_description, open_bar
from ucxstore.base.options import UcxValue, parse_size
from ucxstore.base.secret import Secret
from ucxstore.base.showing import html_block, html_table
from ucxstore.dask.dashboard import PATH, DashboardPlugin
from ucxstore.dask.figures import DeploymentStats, WorkerStats
from ucxstore.dask.host_server import Running
from ucxstore.dask.host_store import HostStore
from ucxstore.dask.plugin import (
    ServerPlugin,
    end_hosts,
    figures_in,
    make_mark,
    remove_mark,
    servers_in,
)
from ucxstore.dask.secret import DeploymentSecret
from ucxstore.server.locations import LocationKind, hide_password, parse_location
from ucxstore.server.options.keywords import ServerKeywords, WorkerKeywords
from ucxstore.server.options.server_options import LOOPBACK, ServerOptions
from ucxstore.server.options.when_full import WhenFull
from ucxstore.stores.scratch import DEFAULT_TIMEOUT, Scratch
from ucxstore.stores.store import UcxStore

# Seconds that all workers may take to start their servers, and to answer anything else.
START_SECONDS = 60.0
ANSWER_SECONDS = 30.0

# Seconds between looks at the workers, and how long it may take until a lost one is noticed.
_LOOK_SECONDS = 0.5
_NOTICE_SECONDS = 15.0

# Seconds that a bar waits for its last look at the workers.
_LAST_LOOK_SECONDS = 5.0

# What tasks raise where values went with a worker, or Dask itself where tasks did.
_LOSSES = (
    ServerLostError,
    ConnectError,
    RequestTimeoutError,
    ScratchEndedError,
    EvictedError,  # Dask has run a task again that had read its values, where that frees them
    KilledWorker,
)

# The options of servers that `deploy` sets itself.
_DECIDED = frozenset({"bind", "secret", "insecure", "shared", "cache", "scratch_limit", "socket"})


def deploy(
    client: Client,
    storage: str | os.PathLike[str] = "memory://",
    memory: int | str = "2GiB",
    *,
    per: Literal["worker", "host"] | None = None,
    **options: Unpack[WorkerKeywords],
) -> "Deployment":
    """Start a server in every worker of a Dask cluster, or one a host, also for workers that join.

    The servers run in threads of the workers' processes, at the workers' addresses, or in a process
    of each host. They share a new secret.

    Parameters
    ----------
    client : distributed.Client
        Not an asynchronous one.
    storage : str or os.PathLike
        ``"memory://"``: each server holds its share of the chunks in its worker's memory. They are
        lost when the worker ends. A directory that all workers see, and that ``create=True`` makes
        if it does not exist: any server can serve any chunk,
        so nothing is lost when a worker ends. The URL of an object store, such as
        ``"s3://bucket/prefix"``: each server caches its share of what is read, so that all workers
        together fetch an object once. Nothing is lost when a worker ends. The address of other
        servers, such as ``"ucx://host:7400/prefix"``: as an object store.
    memory : int or str
        Bytes of values that each server may hold in memory, such as ``"2GiB"``. A write beyond that
        raises `StorageError`, unless `when_full` says otherwise; a cache drops values instead. With
        `when_full`, all that values need besides counts, too. Dask counts them as unmanaged memory
        of the worker, so keep it well below the worker's ``memory_limit``. With a directory, only
        scratch spaces use it. With an object store, scratch spaces may use as much again.
    per : {"worker", "host"} or None
        ``"host"``: all workers of a host, or rather of an address, share one server, which has
        `memory`. It is a process of its own, so its values are not in the memory of a worker, and
        stay when one is restarted. It ends with the deployment, or 15 s after the host's last
        worker. If the values are not in memory alone, tasks use the server of their own host: so
        each host fetches what its tasks read, once. ``None``: ``"host"`` for the address of other
        servers, and else ``"worker"``.
    **options
        Options of `ucxstore.server.ServerOptions`, such as `threads`, or `freshness` with an object
        store. `bind`, `secret`, `insecure`, `shared`, `cache`, `scratch_limit` and `socket`
        cannot be given, since `deploy` sets them. ``when_full="spill:DIRECTORY"`` gives
        each worker a folder of its own there, and ``"evict"`` takes no prefixes. `ucx` also applies
        to the stores.
        Options that are missing in `storage_options` come from each worker's environment. Those
        that are given are sent to the workers like the secret.

    Returns
    -------
    Deployment
        A context manager; leaving it ends the servers.

    Raises
    ------
    ValueError, TypeError
        If an option is not usable, the cluster has no worker yet, the client is asynchronous, or
        workers see different directories under that name.
    TimeoutError
        If the workers do not answer in time.
    Exception
        If a server does not start; those that have started are ended.

    Examples
    --------
    >>> with ucxstore.dask.deploy(client, memory="4GiB") as deployed:  # doctest: +SKIP
    ...     x.to_zarr(zarr.create_array(deployed.store("scratch"), ...))
    """
    kind, location = parse_location("storage", storage)
    if kind is LocationKind.DIRECTORY:
        location = str(Path(location).absolute())  # workers have other current folders
    limit = parse_bytes(memory)
    if limit < 1:
        raise ValueError(f"memory: {memory!r} is less than a byte")
    if client.asynchronous:
        raise ValueError("client: must not be asynchronous, since deploy blocks")
    for name in sorted(_DECIDED & options.keys()):
        raise TypeError(f"{name}: deploy sets it itself")
    if per not in (None, "worker", "host"):
        raise ValueError(f"per: {per!r} is neither 'worker' nor 'host'")
    shares = per == "host" or (per is None and kind is LocationKind.SERVERS)
    name = f"ucxstore-{secrets.token_hex(8)}"
    text = secrets.token_hex(32).encode()  # 256 bits, without white space at an end
    secret_of_all = Secret(text, pickle_text=True)
    given = cast(ServerKeywords, {**options, "secret": secret_of_all})
    chosen = ServerOptions.of(LOOPBACK, given)
    is_source = kind in (LocationKind.OBJECTS, LocationKind.SERVERS)
    if not is_source:
        chosen.refuse_source_options()
    if chosen.create and kind is not LocationKind.DIRECTORY:
        raise ValueError("create: only a directory can be created")
    if chosen.when_full is not None and kind is not LocationKind.MEMORY:
        raise ValueError("when_full: only memory:// has this option")
    in_workers = replace(
        chosen,
        create=False,  # one worker makes it for all
        when_full=_in_workers(chosen.when_full),
        shared=kind is not LocationKind.MEMORY,
        cache=limit if is_source else None,
        scratch_limit=None if kind is LocationKind.MEMORY else limit,
    )
    secret = DeploymentSecret.hold(name, text)
    deployment = Deployment(client, name, secret, location, chosen.ucx)
    try:
        plugin = ServerPlugin(name, location, limit, in_workers, shares=shares)
        deployment._start(plugin, create=chosen.create)
    except BaseException:
        deployment.close()
        raise
    return deployment


def _in_workers(when_full: str | None) -> str | None:
    """Return the policy for workers, which have other current folders; refuse prefixes."""
    if when_full is None:
        return None
    full = WhenFull.parse("when_full", when_full)
    if full.does == "spill":
        return f"spill:{Path(full.directory).absolute()}"
    if full.does == "evict" and full.below != ("",):
        raise ValueError(
            f"when_full: {when_full!r}: the keys of a deployment begin with names that it chooses; "
            "give 'evict' without prefixes"
        )
    return when_full


class _Set(NamedTuple):
    """The servers that a prefix has its values at.

    Parameters
    ----------
    servers : dict of bytes
        Their identities.
    epoch : int
        Tells stores of the same servers apart, where others were accepted in between.
    """

    servers: dict[HostPort, bytes]
    epoch: int = 0

    @property
    def name(self) -> str:
        """What the keys of its stores begin with.

        All servers have all metadata. With one prefix for all sets, a store with other servers
        would find the arrays, but would look for chunks on the wrong servers, and read fill values.
        """
        names = sorted(str(server).encode() + identity for server, identity in self.servers.items())
        names.append(str(self.epoch).encode())
        return hashlib.blake2b(b"".join(names), digest_size=8).hexdigest()


class Deployment:
    """Servers in the workers of a Dask cluster. `deploy` makes it.

    A store places chunks in the workers' memory by its list of servers. So it always has the
    servers that ran when it was made, and so have later stores of the same prefix.
    """

    def __init__(
        self,
        client: Client,
        name: str,
        secret: DeploymentSecret,
        location: str,
        ucx: Mapping[str, UcxValue],
    ) -> None:
        self._client = client
        self._name = name
        self._secret = secret
        self._kind, self._location = parse_location("storage", location)
        self._ucx = ucx
        self._registered = False
        self._shares = False
        self._closed = False
        self._link: str | None = None
        # By the prefixes of stores over memory.
        self._sets: dict[str, _Set] = {}

    @property
    def name(self) -> str:
        """The name of the plugin in the workers, and in Dask's logs."""
        return self._name

    @property
    def addresses(self) -> dict[str, str]:
        """The addresses of the servers that run now, by the addresses of their workers.

        Raises
        ------
        TimeoutError
            If the workers do not answer in time.
        """
        return {
            worker: str(Address((running.server,))) for worker, running in self._running().items()
        }

    def stats(self) -> DeploymentStats:
        """Return what the servers, and the stores in the workers, have counted, added up.

        Returns
        -------
        DeploymentStats
            A frozen dataclass that prints as a table, and a dictionary. Its `workers` has the
            counters of each worker. Workers that were lost are not in it.

        Raises
        ------
        ConnectError
            If the deployment is closed.
        TimeoutError
            If the workers do not answer in time.
        """
        self._check_open()
        found: dict[str, dict[str, Any]] = _run(self._client, figures_in)
        return DeploymentStats.of(
            {
                worker: WorkerStats.of(each[self._name])
                for worker, each in found.items()
                if self._name in each
            }
        )

    def progress(
        self, planned: int | str, description: str = "ucxstore"
    ) -> AbstractContextManager[Meter]:
        """Show a progress bar for the bytes that go to and from the servers, by whatever task.

        `ucxstore.progress` counts in its own process, and tasks run in others. This one asks the
        workers twice a second.

        Parameters
        ----------
        planned : int or str
            The bytes that tasks will read and write within the block, such as ``x.nbytes`` or
            ``"2GiB"``.
        description : str
            What stands before the bar.

        Returns
        -------
        context manager
            It gives a `Meter`, with the bytes that are `planned` and `moved`.

        Raises
        ------
        ImportError, ValueError, TypeError
            As `ucxstore.progress` does, or if `planned` is no size.
        """
        check_description(description)
        return self._progress(parse_size("planned", planned), description)

    @contextmanager
    def _progress(self, planned: int, description: str) -> Iterator[Meter]:
        before = _moved(self.stats())
        meter = Meter(open_bar(description))
        meter.add(planned=planned)
        over = threading.Event()

        def look() -> None:
            # Workers that are lost take their counters along.
            moved = _moved(self.stats()) - before
            meter.add(moved=max(moved - meter.moved, 0))

        def watch() -> None:
            while not over.wait(_LOOK_SECONDS):
                with suppress(Exception):  # the next look is another attempt
                    look()

        watcher = threading.Thread(target=watch, name="ucxstore-progress", daemon=True)
        watcher.start()
        try:
            yield meter
            over.set()
            watcher.join(_LAST_LOOK_SECONDS)
            if not watcher.is_alive():  # else the workers do not answer
                with suppress(Exception):  # what was computed stands, whatever the bar shows
                    look()
        finally:
            over.set()
            watcher.join(_LAST_LOOK_SECONDS)
            meter.close()

    def store(self, prefix: str = "", *, accept_changed: bool = False, **options: Any) -> UcxStore:
        """Make a store over the servers that run now.

        It works in this process. Pickled, it works in tasks on any worker, which has the secret.

        A store over workers' memory does not change when workers join: the first call with a prefix
        decides on its servers, and later calls return stores of the same ones, with the same
        values. So do calls with a prefix below it: ``store("step-1")`` has what ``store()`` has
        under ``"step-1/"``. When one of their workers leaves, its values are lost, and reading them
        raises. Then a call with the same prefix raises, too, as a store over other workers would be
        another, empty one.

        Parameters
        ----------
        prefix : str
            A prefix of every key.
        accept_changed : bool
            Take the servers that run now, if they are not those of the first call with this prefix
            or one above it. The store begins empty, and is what later calls return with this prefix
            or one below it. Stores that were made before do not have its values, and keep theirs,
            also in the memory of the workers that are still there.
        **options
            As for `UcxStore`.

        Raises
        ------
        ClusterError
            If a worker that has values of this prefix is gone; the message names its server. If
            stores of prefixes below this one were made over other workers.
        ConnectError
            If no worker has a server, or the deployment is closed.
        TimeoutError
            If the workers do not answer in time.
        """
        running = self._servers()
        prefix = prefix.strip("/")
        if self._kind is not LocationKind.MEMORY:
            return self._over(_Set(running), prefix, options)
        return self._over(self._set_of(prefix, running, accept_changed), prefix, options)

    def _over(self, chosen: _Set, prefix: str, options: Mapping[str, Any]) -> UcxStore:
        """Return a store of these servers."""
        if self._kind is LocationKind.MEMORY:
            prefix = f"{chosen.name}/{prefix}".rstrip("/")
        address = Address(tuple(sorted(chosen.servers)), prefix)
        kind = HostStore if self._shares and self._kind is not LocationKind.MEMORY else UcxStore
        store = kind(address, **{"secret": self._secret, "ucx": self._ucx, **options})
        store.rely_on(chosen.servers)
        return store

    def _set_of(self, prefix: str, running: dict[HostPort, bytes], accept_changed: bool) -> _Set:
        """Return the servers that a prefix has its values at, or decide on those that run."""
        above = next((one for one in _with_above(prefix) if one in self._sets), None)
        if above is not None:
            chosen = self._sets[above]
            if chosen.servers == running or not accept_changed:
                self._check_there(above, chosen.servers, running)
                return chosen
        below = [one for one in self._sets if one != prefix and prefix in _with_above(one)]
        earlier = [self._sets[one] for one in (*below, *([] if above is None else [above]))]
        chosen = earlier[0] if earlier else _Set(running)
        if chosen.servers != running or any(one != chosen for one in earlier):
            if not accept_changed:
                raise ClusterError(
                    f"{self._name}: stores with prefixes below {prefix!r} were made over other "
                    f"workers than there are now: {', '.join(map(repr, sorted(below)))}; use "
                    "these, or accept_changed=True, for a store that begins empty"
                )
            chosen = _Set(running, 1 + max(one.epoch for one in earlier))
            for one in below:
                del self._sets[one]
        self._sets[prefix] = chosen
        return chosen

    def _check_there(
        self, prefix: str, first: Mapping[HostPort, bytes], running: Mapping[HostPort, bytes]
    ) -> None:
        """Raise `ClusterError` unless all servers run that a prefix has its values at."""
        missing = _names(server for server in first if running.get(server) != first[server])
        if not missing:
            return
        joined = _names(server for server in running if running[server] != first.get(server))
        new = f", and new are {joined}" if joined else ""
        other = f"a prefix that is not below {prefix!r}, or " if prefix else ""
        raise ClusterError(
            f"{self._name}: the workers have changed since store({prefix!r}) was first made: "
            f"missing with its values are {missing}{new}; use {other}accept_changed=True, for a "
            "store that begins empty over the workers that are there"
        )

    def scratch(
        self,
        quota: int | str,
        timeout: float = DEFAULT_TIMEOUT,
        *,
        read_once: bool = False,
        **options: Any,
    ) -> Scratch[UcxStore]:
        """Make a scratch space in the memory of the current workers.

        Parameters
        ----------
        quota, timeout, read_once
            As for `UcxStore.scratch`.
        **options
            As for `UcxStore`, for the stores in it.

        Raises
        ------
        ConnectError
            If no worker has a server, or one cannot be reached.
        TimeoutError
            If the workers do not answer in time.
        """
        whole = self._over(_Set(self._servers()), "", options)
        return whole.scratch_sync(quota, timeout, read_once=read_once)

    def retry[R](
        self,
        step: Callable[[Scratch[UcxStore]], R],
        quota: int | str,
        *,
        attempts: int = 3,
        timeout: float = DEFAULT_TIMEOUT,
        read_once: bool = False,
        **options: Any,
    ) -> R:
        """Compute with a scratch space, and once more if a worker is lost with some of its values.

        Dask computes a lost result anew, but does not know of chunks: they are no results, and no
        other worker can take the place of a lost one in a store over memory. So all tasks of the
        step are computed anew, over the workers that are there then, in a new scratch space.

        Parameters
        ----------
        step : callable
            Takes the scratch space, and computes all that it needs: what it returns must not need
            the space any more, which ends with the attempt.
        quota, timeout, read_once, **options
            As for `scratch`. A task that reads what it has read before fails, and so does the step:
            `read_once` is for tasks that Dask does not run again.
        attempts : int
            How often `step` may be called.

        Returns
        -------
        object
            What `step` has returned.

        Raises
        ------
        ClusterError
            If workers were lost in each attempt.
        Exception
            What `step` raises while all of the workers are there.
        """
        if attempts < 1:
            raise ValueError(f"attempts: {attempts} is less than 1")
        for _ in range(attempts):
            servers = self._servers()
            try:
                whole = self._over(_Set(servers), "", options)
                with whole.scratch_sync(quota, timeout, read_once=read_once) as scratch:
                    return step(scratch)
            except _LOSSES as error:
                lost = self._lost_of(servers)
                if not lost:
                    raise
                last = error
            logs.cluster.warning("%s: lost %s; the step is computed anew", self._name, _names(lost))
        raise ClusterError(
            f"{self._name}: workers were lost in each of {attempts} attempts: {last}"
        ) from last

    def _lost_of(self, servers: Mapping[HostPort, bytes]) -> list[HostPort]:
        """Return those that are gone; wait a moment for those that are just going."""
        deadline = time.monotonic() + _NOTICE_SECONDS
        while True:
            running = {each.server: each.identity for each in self._running().values()}
            lost = [server for server in servers if running.get(server) != servers[server]]
            if (lost and running) or time.monotonic() >= deadline:
                return lost
            time.sleep(_LOOK_SECONDS)

    def close(self) -> None:
        """End the servers, and free the values in their memory. A second call does nothing.

        Raises
        ------
        TimeoutError
            If the workers do not answer in time.
        """
        if self._closed:
            return
        self._closed = True
        self._secret.let_go()
        if self._client.status != "running":
            return  # the cluster cannot be reached; the servers end with their workers
        if self._kind is LocationKind.DIRECTORY:
            _run(self._client, remove_mark, self._location, self._name)
        if self._registered:
            if self._shares:
                _run(self._client, end_hosts, self._name)
            try:
                self._call(lambda: self._client.unregister_worker_plugin(self._name), START_SECONDS)
            except OSError:
                pass  # a worker that was lost has no server left to end
            except KeyError as error:
                if error.args != (self._name,):
                    raise
                # A worker that is just leaving has ended its server already.

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    @property
    def dashboard_link(self) -> str | None:
        """The page of Dask's dashboard with the counters; ``None`` where there is no dashboard."""
        return self._link

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._closed else "open"
        return f"<Deployment {self._name!r} of {hide_password(self._location)!r}, {state}>"

    def _repr_html_(self) -> str:
        rows = [
            ("storage", hide_password(self._location)),
            ("state", "closed" if self._closed else "open"),
            ("dashboard", self.dashboard_link or "-"),
        ]
        return html_block("Deployment", self._name, html_table(rows))

    def _start(self, plugin: ServerPlugin, *, create: bool) -> None:
        workers = list(self._call(self._client.nthreads, ANSWER_SECONDS))
        if not workers:
            raise ValueError("client: its cluster has no worker yet; see Client.wait_for_workers")
        if self._kind is LocationKind.DIRECTORY:
            marked = {"workers": workers[:1], "on_error": "raise"}
            _run(self._client, make_mark, self._location, self._name, create, **marked)
        self._registered = True
        self._shares = plugin.shares
        self._call(lambda: self._client.register_plugin(plugin), START_SECONDS)
        self._add_page()

    def _add_page(self) -> None:
        """Add the page to Dask's dashboard, if the scheduler has this package."""
        page = DashboardPlugin()
        try:
            self._call(lambda: self._client.register_plugin(page), ANSWER_SECONDS)
            link = self._client.dashboard_link  # asks the scheduler, so never in a repr
        except Exception as error:  # of any kind: what the scheduler misses, say
            logs.root.warning("no page %s on the dashboard: %r", PATH, error)
        else:
            self._link = f"{link.removesuffix('/status').rstrip('/')}{PATH}" if link else None

    def _check_open(self) -> None:
        if self._closed:
            raise ConnectError(f"{self._name}: the deployment is closed")

    def _servers(self) -> dict[HostPort, bytes]:
        """Return the servers that run, and their identities; at least one."""
        running = {each.server: each.identity for each in self._running().values()}
        if not running:
            raise ConnectError(f"{self._name}: no worker of the cluster has a server")
        return running

    def _running(self) -> dict[str, Running]:
        self._check_open()
        found = servers_of(self._client).items()
        return {worker: each[self._name] for worker, each in found if self._name in each}

    def _call(self, start: Callable[[], Awaitable[Any]], seconds: float) -> Any:
        return self._client.sync(start, callback_timeout=seconds)


def _names(servers: Iterable[HostPort]) -> str:
    return ", ".join(map(str, sorted(servers)))


def _moved(stats: DeploymentStats) -> int:
    """Return the bytes of values that have gone to the servers and from them."""
    return stats.bytes_received + stats.bytes_sent + stats.bytes_seen


def _with_above(prefix: str) -> list[str]:
    """Return a prefix and those above it, the nearest first: of "a/b", "a/b", "a" and ""."""
    parts = prefix.split("/") if prefix else []
    return ["/".join(parts[:count]) for count in range(len(parts), -1, -1)]


def servers_of(client: Client) -> dict[str, dict[str, Running]]:
    """Return the servers of each worker, by the name of their deployment; without lost workers."""
    found: dict[str, dict[str, Running]] = _run(client, servers_in)
    return found


def workers_of_servers(client: Client) -> dict[HostPort, list[str]]:
    """Return the workers of each server of a cluster: several may share it."""
    found: dict[HostPort, list[str]] = {}
    for worker, servers in servers_of(client).items():
        for running in servers.values():
            found.setdefault(running.server, []).append(worker)
    return found


def _run(client: Client, function: Callable[..., Any], *args: object, **options: Any) -> Any:
    """Call ``Client.run`` with a deadline; leave out workers that are lost."""
    options = {"on_error": "ignore", **options}
    return client.sync(
        lambda: client.run(function, *args, **options), callback_timeout=ANSWER_SECONDS
    )
