"""Other keepers of values for many processes of one host: Redis, and LMDB."""

import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from profiles.loopback import free_port

_PROGRAMS = ("redis-server", "valkey-server")
_START_SECONDS = 10.0
_ANSWER_SECONDS = 120.0
_READY = "Ready to accept connections"

# All who open an environment must give the same.
LMDB_OPTIONS = {"map_size": 1 << 30, "max_readers": 1024}


class RedisServer(NamedTuple):
    path: str  # of its Unix socket
    pid: int


def find_redis() -> str | None:
    """Return the program of a Redis server, or of Valkey; ``None`` if there is none on PATH."""
    return next(filter(None, map(shutil.which, _PROGRAMS)), None)


@contextmanager
def redis(program: str, values: Mapping[str, bytes]) -> Iterator[RedisServer]:
    """Run a Redis server that has these values, at a Unix socket, without writing to the disk."""
    with tempfile.TemporaryDirectory(prefix="bench-redis-") as folder:
        path = str(Path(folder, "socket"))
        options = ["--port", "0", "--unixsocket", path, "--save", "", "--appendonly", "no"]
        with subprocess.Popen(
            [program, *options, "--dir", folder], stdout=subprocess.DEVNULL
        ) as process:
            try:
                with _connect(path, process) as connection:
                    for key, value in values.items():
                        connection.sendall(_command(b"SET", key.encode(), value))
                        if connection.recv(16) != b"+OK\r\n":
                            raise RuntimeError(f"{program} did not take a value")
                yield RedisServer(path, process.pid)
            finally:
                process.terminate()


@contextmanager
def redis_over_tcp(program: str, ip: str, inside: Sequence[str] = ()) -> Iterator[tuple[int, int]]:
    """Run an empty Redis server that listens at an address; yield its port and its process.

    Parameters
    ----------
    program, ip : str
    inside : sequence of str
        What goes before the command to run it on another host.
    """
    port = free_port()
    options = ["--bind", ip, "--port", str(port), "--protected-mode", "no"]
    options += ["--save", "", "--appendonly", "no"]
    with tempfile.TemporaryDirectory(prefix="bench-redis-") as folder:
        log = Path(folder, "log")
        with (
            log.open("w") as output,
            subprocess.Popen(
                [*inside, program, *options, "--dir", folder], stdout=output, process_group=0
            ) as process,
        ):
            try:
                _await_ready(process, log)
                yield port, process.pid
            finally:
                process.terminate()


def _await_ready(process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while _READY not in log.read_text():
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"Redis did not start: {log.read_text()[-1000:]}")
        time.sleep(0.02)


class RedisClient:
    """A connection to a Redis server over TCP, which moves values of one size.

    Parameters
    ----------
    address : str
        ``host:port``.
    out : bytearray
        The memory for values.
    """

    def __init__(self, address: str, out: bytearray) -> None:
        host, _, port = address.rpartition(":")
        self._connection = socket.create_connection((host, int(port)), timeout=_ANSWER_SECONDS)
        self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._head = bytearray(len(b"$%d\r\n" % len(out)))
        self._expected = b"$%d\r\n" % len(out)
        self._end = bytearray(2)
        self._out = out

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def get_into(self, key: str) -> None:
        """Get a value into the memory."""
        name = key.encode()
        self._connection.sendall(b"*2\r\n$3\r\nGET\r\n$%d\r\n%b\r\n" % (len(name), name))
        left = [memoryview(part) for part in (self._head, self._out, self._end)]
        done, size = 0, len(self._expected)
        while left:
            received = self._connection.recvmsg_into(left)[0]
            # An answer without the value may be shorter than the head.
            if done < size:
                head = bytes(self._head[: done + received])
                if not self._expected.startswith(head):
                    raise RuntimeError(f"{key}: Redis has answered {head!r}")
            done += received
            left = _behind(left, received)

    def set(self, key: str, value: bytes | bytearray) -> None:
        """Set a value."""
        name = key.encode()
        head = b"*3\r\n$3\r\nSET\r\n$%d\r\n%b\r\n$%d\r\n" % (len(name), name, len(value))
        left = [memoryview(part) for part in (head, value, b"\r\n")]
        while left:
            left = _behind(left, self._connection.sendmsg(left))
        answer = b""
        while not answer.endswith(b"\r\n"):
            received = self._connection.recv(64)
            if not received:
                raise EOFError("Redis has ended the connection")
            answer += received
        if answer != b"+OK\r\n":
            raise RuntimeError(f"{key}: Redis has answered {answer!r}")


def _behind(parts: list[memoryview], moved: int) -> list[memoryview]:
    """Return what is left of the parts once so many bytes of them have moved."""
    if moved == 0:
        raise EOFError("Redis has ended the connection")
    while parts and moved >= len(parts[0]):
        moved -= len(parts[0])
        parts = parts[1:]
    return [parts[0][moved:], *parts[1:]] if parts else []


def put_into_lmdb(folder: Path, values: Mapping[str, bytes]) -> None:
    import lmdb

    with (
        lmdb.open(str(folder), **LMDB_OPTIONS) as environment,
        environment.begin(write=True) as transaction,
    ):
        for key, value in values.items():
            transaction.put(key.encode(), value)


def _connect(path: str, process: subprocess.Popen[bytes]) -> socket.socket:
    deadline = time.monotonic() + _START_SECONDS
    while True:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(path)
        except OSError:
            connection.close()
            if process.poll() is not None or time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            return connection


def _command(*words: bytes) -> bytes:
    parts = [b"$%d\r\n%b\r\n" % (len(word), word) for word in words]
    return b"*%d\r\n" % len(words) + b"".join(parts)
