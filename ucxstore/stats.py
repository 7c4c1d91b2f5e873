"""What a store has counted: which way chunks went, and how many bytes."""

import threading
from typing import TypedDict


class ServerStats(TypedDict):
    """What one of a store's servers was asked.

    Attributes
    ----------
    requests : int
        Requests, each for all of a batch that is placed there.
    failovers : int
        Requests that others were asked in its place, since it was lost.
    """

    requests: int
    failovers: int


class StoreStats(TypedDict):
    """The counters of a store and of its copies by ``with_read_only``, since it was made.

    Attributes
    ----------
    direct, decode, encode, fallback : int
        Chunks that zarr read or wrote: moved straight between the user's array and the store, in
        part or whole; fetched whole as they are stored and decoded here; encoded or merged with
        what is stored here, and sent from the encoder's memory; or left to the pipeline that zarr
        would have used.
    decode_in_place : int
        Those of `decode` that their codec wrote straight into the array; the others were decoded
        into memory of the store's own first, since they were wanted in part or in rows.
    bytes_read, bytes_written : int
        Bytes of values, received and sent.
    staged_bytes : int
        Those of the bytes received that were put into memory of the store's own, since nobody
        had said where they should go.
    lanes : list of str
        What UCX chose for the connection, such as ``"sysv/memory"``; empty while there is none. Of
        several servers' connections, each once.
    servers : dict of ServerStats
        Each of several servers, by its ``host:port``; empty for a store of one.
    """

    direct: int
    decode: int
    decode_in_place: int
    encode: int
    fallback: int
    bytes_read: int
    bytes_written: int
    staged_bytes: int
    lanes: list[str]
    servers: dict[str, ServerStats]


class Counters:
    """Adds up what happens on any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._direct = self._decode = self._in_place = self._encode = self._fallback = 0
        self._read = self._written = self._staged = 0
        self._servers: dict[str, ServerStats] = {}

    def add(
        self,
        *,
        direct: int = 0,
        decode: int = 0,
        in_place: int = 0,
        encode: int = 0,
        fallback: int = 0,
        read: int = 0,
        written: int = 0,
        staged: int = 0,
    ) -> None:
        """Count; once a batch, not once a chunk."""
        with self._lock:
            self._direct += direct
            self._decode += decode
            self._in_place += in_place
            self._encode += encode
            self._fallback += fallback
            self._read += read
            self._written += written
            self._staged += staged

    def add_server(self, place: str, *, requests: int = 0, failovers: int = 0) -> None:
        """Count what one of several servers is asked."""
        with self._lock:
            server = self._servers.setdefault(place, ServerStats(requests=0, failovers=0))
            server["requests"] += requests
            server["failovers"] += failovers

    def snapshot(self, lanes: list[str]) -> StoreStats:
        """Return all counters as they are at one moment."""
        with self._lock:
            return StoreStats(
                direct=self._direct,
                decode=self._decode,
                decode_in_place=self._in_place,
                encode=self._encode,
                fallback=self._fallback,
                bytes_read=self._read,
                bytes_written=self._written,
                staged_bytes=self._staged,
                lanes=lanes,
                servers={place: server.copy() for place, server in self._servers.items()},
            )
