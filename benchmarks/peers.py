"""Other keepers of values for many processes of one host: Redis, and LMDB."""

import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

_PROGRAMS = ("redis-server", "valkey-server")
_START_SECONDS = 10.0

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
