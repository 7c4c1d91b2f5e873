"""The rows of the matrix: all stores and pipelines that are measured; open a row's store."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from zarr.abc.store import Store
from zarr.storage import FsspecStore, LocalStore, MemoryStore, ObjectStore

from ucxstore import UcxStore
from ucxstore.copies.workload import Workload

type Kind = Literal["folder", "bucket", "process", "server"]

# A ucxstore server in front of a bucket.
HOT = "S3, hot"
COLD = "S3, cold"


@dataclass(frozen=True, slots=True)
class Transport:
    """How a client and a server of one host reach each other.

    Attributes
    ----------
    server, client : mapping
        The options that decide it: of `Server`, and of `UcxStore`.
    lane : str
        What ``stats()["lanes"]`` of the store has, before the name of a device.
    """

    server: Mapping[str, Any]
    client: Mapping[str, Any]
    lane: str


_UCX_OVER_TCP: dict[str, Any] = {"network": "ucx", "ucx": {"TLS": "tcp"}}

TRANSPORTS = {
    "local": Transport({"local": True}, {"local": "auto"}, "local"),
    "shared memory": Transport(
        {"local": False, "ucx_shared_memory": True}, {"local": "ucx"}, "posix/"
    ),
    "TCP": Transport({"local": False}, {"local": "off", "network": "tcp"}, "tcp"),
    "UCX over TCP": Transport(
        {"local": False, **_UCX_OVER_TCP}, {"local": "off", **_UCX_OVER_TCP}, "tcp/"
    ),
}


@dataclass(frozen=True, slots=True)
class Row:
    """A store with a pipeline.

    Attributes
    ----------
    store, pipeline, transport : str
        Their names in the report.
    kind : str
        Where the chunks are: in a ``"folder"``, a ``"bucket"`` of an S3 server, the ``"process"``
        itself, or a ucxstore ``"server"``.
    storage : str
        The server's storage: ``"memory"``, ``"directory"``, or a bucket. The server either has the
        bucket's values in its cache (``"S3, hot"``) or must fetch them (``"S3, cold"``).
    zarr2 : bool
        Whether it is zarr-python 2, which has its own environment.
    call : str
        What moves one raw chunk in place of ``array[:]`` and ``array[:] = values``; see
        `profiles.moves`. ``"mapped"`` is ``array[:]``, too, where it must not copy.
    """

    store: str
    pipeline: str
    kind: Kind
    transport: str = ""
    storage: str = ""
    zarr2: bool = False
    call: str = ""

    @property
    def name(self) -> str:
        """The name in files and options: ``"UcxStore-memory-zero-copy-TCP"``."""
        parts = [self.store.replace(", ", "-"), self.pipeline, self.transport]
        return "-".join(part.replace(" ", "-") for part in parts if part)

    def supports(self, workload: Workload) -> bool:
        """Tell whether the row has a workload.

        There are no shards in zarr 2, no writes if cold, and one raw chunk for other calls.
        """
        if self.call:
            return workload.name == f"{'write' if self.call == 'allocate' else 'read'}-raw-one"
        if self.storage == COLD:
            return workload.direction == "read"
        return not (self.zarr2 and workload.layout == "shard")

    @property
    def way(self) -> str:
        """The way that the chunk must go; ``""`` for any."""
        if not self.call:
            return ""
        return "adopted" if self.call == "allocate" else "mapped"

    @property
    def in_bucket(self) -> bool:
        """Whether the chunks are in a bucket, perhaps behind a ucxstore server."""
        return self.kind == "bucket" or self.storage in (HOT, COLD)

    @property
    def server_options(self) -> dict[str, Any]:
        """The options of the server that decide which way a client takes."""
        return dict(TRANSPORTS[self.transport].server)

    @property
    def client_options(self) -> dict[str, Any]:
        """Those of the client.

        Results are copied, unless it is the row's promise that they are not: else it would depend
        on the moment of a read which figure a row has.
        """
        return {**TRANSPORTS[self.transport].client, "map": self.call == "mapped"}


_OF_ZARR: tuple[tuple[str, Kind], ...] = (
    ("LocalStore", "folder"),
    ("MemoryStore", "process"),
    ("ObjectStore, local", "folder"),
    ("ObjectStore, S3", "bucket"),
    ("FsspecStore, s3fs", "bucket"),
    ("FsspecStore, local", "folder"),
)

# What a client of the server's host can call besides, by the server's storage.
_CALLS = {
    "memory": ("view", "view_array", "mapped", "allocate"),
    "directory": ("map_files",),
}

ROWS: tuple[Row, ...] = (
    *(
        Row(f"UcxStore, {storage}", "zero-copy", "server", transport, storage)
        for storage in ("memory", "directory", HOT, COLD)
        for transport in TRANSPORTS
    ),
    *(
        Row(f"UcxStore, {storage}, {call}", "zero-copy", "server", "local", storage, call=call)
        for storage, calls in _CALLS.items()
        for call in calls
    ),
    *(Row(store, pipeline, kind) for store, kind in _OF_ZARR for pipeline in ("default", "fused")),
    Row("zarrs-python, local", "zarrs", "folder"),
    Row("zarr 2.18, local", "none", "folder", zarr2=True),
    Row("zarr 2.18, s3fs", "none", "bucket", zarr2=True),
)


def select(patterns: Sequence[str]) -> list[Row]:
    """Return the rows whose names contain any of the patterns, ignoring case; all without patterns.

    Raises
    ------
    ValueError
        If a pattern matches none.
    """

    def matches(row: Row, pattern: str) -> bool:
        return pattern.lower() in row.name.lower() or pattern.lower() in row.store.lower()

    for pattern in patterns:
        if not any(matches(row, pattern) for row in ROWS):
            names = ", ".join(row.name for row in ROWS)
            raise ValueError(f"no store has {pattern!r} in its name; there are {names}")
    return [row for row in ROWS if not patterns or any(matches(row, one) for one in patterns)]


@contextmanager
def opened(row: Row, location: str, s3: Mapping[str, str] | None) -> Iterator[Store]:
    """Open a row's store.

    Parameters
    ----------
    row : Row
        Any row but those of zarr 2.
    location : str
        A folder, ``bucket/prefix`` or ``ucx://...`` address, as the row's kind requires.
    s3 : mapping or None
        ``endpoint``, ``access_key``, ``secret_key`` and ``region`` of the S3 server.
    """
    store = _open(row, location, s3 or {})
    try:
        yield store
    finally:
        store.close()


def check_transport(row: Row, store: Store) -> None:
    """Check that a store of ours, which is connected, has come by the row's transport.

    Raises
    ------
    AssertionError
        If it has not: its figures would be taken for those of that transport.
    """
    if isinstance(store, UcxStore):
        lanes = store.stats()["lanes"]
        expected = TRANSPORTS[row.transport].lane
        if {"".join(lane.partition("/")[:2]) for lane in lanes} != {expected}:
            raise AssertionError(f"the lanes over {row.transport} were {lanes}")


def _open(row: Row, location: str, s3: Mapping[str, str]) -> Store:
    if row.kind == "server":
        # Not strict: a chunk that goes zarr's way is measured as it is.
        # What it selects besides the pipeline, which is chosen anyway, are results of huge pages.
        selects = row.call == "mapped"
        return UcxStore(location, select_pipeline=selects, **row.client_options)
    if row.kind == "process":
        return MemoryStore()
    if row.store == "ObjectStore, local":
        from obstore.store import LocalStore as Objects

        return ObjectStore(Objects(location, mkdir=True))
    if row.store == "ObjectStore, S3":
        return ObjectStore(_obstore_s3(location, s3))
    if row.store == "FsspecStore, s3fs":
        return FsspecStore.from_url(f"s3://{location}", storage_options=_s3fs_options(s3))
    if row.store == "FsspecStore, local":
        return FsspecStore.from_url(f"file://{location}", storage_options={"auto_mkdir": True})
    return LocalStore(location)


def _obstore_s3(location: str, s3: Mapping[str, str]) -> Any:
    from obstore.store import S3Store

    bucket, _, prefix = location.partition("/")
    return S3Store(
        bucket,
        prefix=prefix,
        endpoint=s3["endpoint"],
        access_key_id=s3["access_key"],
        secret_access_key=s3["secret_key"],
        region=s3["region"],
        virtual_hosted_style_request=False,
        client_options={"allow_http": True},
    )


def _s3fs_options(s3: Mapping[str, str]) -> dict[str, Any]:
    return {
        "key": s3["access_key"],
        "secret": s3["secret_key"],
        "endpoint_url": s3["endpoint"],
        "client_kwargs": {"region_name": s3["region"]},
    }
