"""`deploy`: start a server in every worker of a Dask cluster, and make stores over them."""

import hashlib
import os
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, Unpack

from dask.utils import parse_bytes
from distributed import Client

from ucxstore.address import Address, HostPort
from ucxstore.dask.plugin import Running, ServerPlugin, make_mark, remove_mark, servers_in
from ucxstore.dask.secret import DeploymentSecret
from ucxstore.errors import ConnectError
from ucxstore.options import UcxValue
from ucxstore.scratch import DEFAULT_TIMEOUT, Scratch
from ucxstore.secret import Secret
from ucxstore.server.options import LOOPBACK, ServerKeywords, ServerOptions
from ucxstore.server.sources.locations import Kind, hide_password, parse_location
from ucxstore.store import UcxStore

# Seconds that all workers may take to start their servers, and to answer anything else.
START_SECONDS = 60.0
ANSWER_SECONDS = 30.0

# The options of servers that `deploy` sets itself.
_DECIDED = frozenset(
    {"bind", "secret", "insecure", "shared", "cache", "scratch", "scratch_limit", "socket"}
)


def deploy(
    client: Client,
    storage: str | os.PathLike[str] = "memory://",
    memory: int | str = "2GiB",
    **options: Unpack[ServerKeywords],
) -> "Deployment":
    """Start a server in every worker of a Dask cluster, and in workers that join later.

    The servers run in threads of the workers' processes, at the workers' addresses. They share a
    new secret.

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
        together fetch an object once. Nothing is lost when a worker ends.
    memory : int or str
        Bytes of values that each server may hold in memory, such as ``"2GiB"``. A write beyond that
        raises `StorageError`; a cache drops values instead. Dask counts them as unmanaged memory of
        the worker, so keep it well below the worker's ``memory_limit``. With a directory, only
        scratch spaces use it. With an object store, scratch spaces may use as much again.
    **options
        Options of `ucxstore.server.ServerOptions`, such as `threads`, or `freshness` with an object
        store. `bind`, `secret`, `insecure`, `shared`, `cache`, `scratch`, `scratch_limit` and
        `socket` cannot be given, since `deploy` sets them. `ucx` also applies to the stores.
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
    if kind is Kind.DIRECTORY:
        location = str(Path(location).absolute())  # workers have other current folders
    limit = parse_bytes(memory)
    if limit < 1:
        raise ValueError(f"memory: {memory!r} is less than a byte")
    if client.asynchronous:
        raise ValueError("client: it is asynchronous; deploy blocks, so give it one that is not")
    for name in sorted(_DECIDED & options.keys()):
        raise TypeError(f"{name}: deploy sets it itself")
    chosen = ServerOptions.of(LOOPBACK, options)
    if kind is not Kind.OBJECTS:
        chosen.refuse_source_options()
    if chosen.create and kind is not Kind.DIRECTORY:
        raise ValueError("create: the storage is no directory, and only these are made")
    name = f"ucxstore-{secrets.token_hex(8)}"
    text = secrets.token_hex(32).encode()  # 256 bits, without white space at an end
    in_workers = replace(
        chosen,
        secret=Secret(text, pickle_text=True),
        create=False,  # one worker makes it for all
        shared=kind is not Kind.MEMORY,
        cache=limit if kind is Kind.OBJECTS else None,
        scratch_limit=None if kind is Kind.MEMORY else limit,
    )
    secret = DeploymentSecret.hold(name, text)
    deployment = Deployment(client, name, secret, location, chosen.ucx)
    try:
        plugin = ServerPlugin(name, location, limit, in_workers)
        deployment._start(plugin, create=chosen.create)
    except BaseException:
        deployment.close()
        raise
    return deployment


class Deployment:
    """Servers in the workers of a Dask cluster. `deploy` makes it.

    A store places chunks in the workers' memory by its list of servers. So it always has the
    servers that ran when it was made.
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
        self._closed = False

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

    def store(self, prefix: str = "", **options: Any) -> UcxStore:
        """Make a store over the servers that run now.

        It works in this process. Pickled, it works in tasks on any worker, which has the secret.

        A store over workers' memory does not change when workers join. When a worker leaves, its
        values are lost, and reading them raises. A new store over other workers places chunks
        elsewhere, so it begins empty. Only stores that were made while the cluster had the same
        servers have the same values.

        Parameters
        ----------
        prefix : str
            A prefix of every key.
        **options
            As for `UcxStore`.

        Raises
        ------
        ConnectError
            If no worker has a server, or the deployment is closed.
        TimeoutError
            If the workers do not answer in time.
        """
        running = {each.server: each.identity for each in self._running().values()}
        if not running:
            raise ConnectError(f"{self._name}: no worker of the cluster has a server")
        prefix = prefix.strip("/")
        if self._kind is Kind.MEMORY:
            prefix = f"{_name_of(running)}/{prefix}".rstrip("/")
        address = Address(tuple(sorted(running)), prefix)
        store = UcxStore(address, **{"secret": self._secret, "ucx": self._ucx, **options})
        store.rely_on(running)
        return store

    def scratch(
        self, quota: int | str, timeout: float = DEFAULT_TIMEOUT, **options: Any
    ) -> Scratch[UcxStore]:
        """Make a scratch space in the memory of the current workers.

        Parameters
        ----------
        quota, timeout
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
        return self.store(**options).scratch(quota, timeout)

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
        if self._kind is Kind.DIRECTORY:
            _run(self._client, remove_mark, self._location, self._name)
        if self._registered:
            try:
                self._call(lambda: self._client.unregister_worker_plugin(self._name), START_SECONDS)
            except OSError:
                pass  # a worker that was lost has no server left to end
            except KeyError as error:
                if error.args != (self._name,):
                    raise
                # A worker that is just leaving has ended its server already.

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Deployment({self._name!r}, {hide_password(self._location)!r})"

    def _start(self, plugin: ServerPlugin, *, create: bool) -> None:
        workers = list(self._call(self._client.nthreads, ANSWER_SECONDS))
        if not workers:
            raise ValueError("client: its cluster has no worker yet; see Client.wait_for_workers")
        if self._kind is Kind.DIRECTORY:
            marked = {"workers": workers[:1], "on_error": "raise"}
            _run(self._client, make_mark, self._location, self._name, create, **marked)
        self._registered = True
        self._call(lambda: self._client.register_plugin(plugin), START_SECONDS)

    def _running(self) -> dict[str, Running]:
        if self._closed:
            raise ConnectError(f"{self._name}: the deployment is closed")
        found = servers_of(self._client).items()
        return {worker: each[self._name] for worker, each in found if self._name in each}

    def _call(self, start: Callable[[], Awaitable[Any]], seconds: float) -> Any:
        return self._client.sync(start, callback_timeout=seconds)


def _name_of(servers: Mapping[HostPort, bytes]) -> str:
    """Return a name for a set of started servers, which is a prefix of their keys.

    All servers have all metadata. With one prefix for all sets, a store with other servers would
    find the arrays, but would look for chunks on the wrong servers, and read fill values.
    """
    names = sorted(str(server).encode() + identity for server, identity in servers.items())
    return hashlib.blake2b(b"".join(names), digest_size=8).hexdigest()


def servers_of(client: Client) -> dict[str, dict[str, Running]]:
    """Return the servers of each worker, by the name of their deployment; without lost workers."""
    found: dict[str, dict[str, Running]] = _run(client, servers_in)
    return found


def workers_of_servers(client: Client) -> dict[HostPort, str]:
    """Return the worker of each server of a cluster."""
    return {
        running.server: worker
        for worker, servers in servers_of(client).items()
        for running in servers.values()
    }


def _run(client: Client, function: Callable[..., Any], *args: object, **options: Any) -> Any:
    """Call ``Client.run`` with a deadline; leave out workers that are lost."""
    options = {"on_error": "ignore", **options}
    return client.sync(
        lambda: client.run(function, *args, **options), callback_timeout=ANSWER_SECONDS
    )
