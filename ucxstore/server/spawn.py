"""`ServerProcess`: start a server in a new process, and end it."""

import asyncio
import logging
import os
import pickle
import socket
import subprocess
import sys
import tempfile
import time
import weakref
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import IO, Any, Self

from ucxstore.base import logs, process
from ucxstore.base.options import check_timeout
from ucxstore.base.secret import Secret
from ucxstore.base.showing import html_block, html_table
from ucxstore.server.locations import parse_location
from ucxstore.server.options.server_options import ServerOptions

START_SECONDS = 30.0

# What the process may take to end, beside the time that it gives its clients to finish.
_END_SECONDS = 7.0

# For a process that nobody closed: the interpreter's exit waits for it.
_FORGOTTEN_SECONDS = 2.0

# The last bytes of the process's output, for error messages.
_OUTPUT_BYTES = 16 * 1024


class ServerProcess:
    """A server in a process of its own, made by `Server.spawn`. A context manager.

    Attributes
    ----------
    address : str
        The address of the server: ``"ucx://127.0.0.1:41234"``.
    """

    address: str

    def __init__(
        self, storage: Any, options: ServerOptions, *, die_with_parent: bool, start_timeout: float
    ) -> None:
        seconds = check_timeout("start_timeout", start_timeout)
        self._close_seconds = options.grace + _END_SECONDS
        self._secret = options.secret
        deadline = time.monotonic() + seconds
        order = _pack(storage, options, die_with_parent)
        with ExitStack() as on_failure:
            # The process gets its order here, and answers with its address. It notices the end of
            # this process by the end of the socket.
            self._link, theirs = socket.socketpair()
            on_failure.enter_context(self._link)
            self._output = on_failure.enter_context(tempfile.TemporaryFile())
            with theirs:
                self._process = _start(theirs, self._output)
            on_failure.callback(_end, self._process, self._link, 0.0)
            try:
                self.address = self._wait_until_ready(order, deadline)
            except TimeoutError:
                raise TimeoutError(
                    f"the server process is not listening after {seconds:g} s: {self.output}"
                ) from None
            on_failure.pop_all()
        weakref.finalize(self, self._output.close)
        self._finalizer = process.Finalizer(
            self,
            process.Exit.SERVERS,
            partial(_end, self._process, self._link),
            _FORGOTTEN_SECONDS,
        )
        if die_with_parent:
            # A forked child would keep our end open after us, and the process would not end.
            process.in_child(self._link.close)
        else:
            self._finalizer.detach()
            self._link.close()

    def _wait_until_ready(self, order: bytes, deadline: float) -> str:
        """Send the order, and wait for the address. ``TimeoutError`` if that takes too long."""
        line = b""
        try:
            self._link.settimeout(max(deadline - time.monotonic(), 1e-3))
            self._link.sendall(order)
            while not line.endswith(b"\n"):
                self._link.settimeout(max(deadline - time.monotonic(), 1e-3))
                part = self._link.recv(4096)
                if not part:
                    raise ConnectionResetError
                line += part
        except ConnectionError:
            raise ChildProcessError(
                f"the server process did not start ({self._how_it_ended()}): {self.output}"
            ) from None
        return line.decode().strip()

    def _how_it_ended(self) -> str:
        try:
            status = self._process.wait(_FORGOTTEN_SECONDS)
        except subprocess.TimeoutExpired:
            return "it still runs"
        return f"killed by signal {-status}" if status < 0 else f"exit status {status}"

    def _reached_by(self) -> tuple[str, Secret | None]:
        """Do as `ucxstore.base.options.reached_by` says, for `UcxStore(server)`."""
        return self.address, self._secret

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """The exit status of the process; negative for a signal, ``None`` while it runs."""
        return self._process.poll()

    @property
    def output(self) -> str:
        """The end of the process's standard output and error.

        It includes the process's log, with the log level of this process.
        """
        # Without seeking: the process writes at the same file position.
        size = os.fstat(self._output.fileno()).st_size
        tail = os.pread(self._output.fileno(), _OUTPUT_BYTES, max(size - _OUTPUT_BYTES, 0))
        return tail.decode(errors="replace").strip()

    def close(self, timeout: float | None = None) -> None:
        """Ask the process to finish, and kill it if it has not ended in time.

        Parameters
        ----------
        timeout : float, optional
            Seconds; by default somewhat more than the server's `grace`.
        """
        self._finalizer(self._close_seconds if timeout is None else timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.close)

    def _state(self) -> str:
        code = self.returncode
        return "serving" if code is None else f"ended with status {code}"

    def __repr__(self) -> str:
        return f"<ServerProcess at {self.address!r}, pid={self.pid}, {self._state()}>"

    def _repr_html_(self) -> str:
        rows = [("process", str(self.pid)), ("state", self._state())]
        return html_block("ServerProcess", self.address, html_table(rows))


def _pack(storage: Any, options: ServerOptions, die_with_parent: bool) -> bytes:
    """Pickle the order for the process. It holds secrets, so nothing else may get it."""
    if isinstance(storage, str | bytes | os.PathLike):
        storage = os.fsdecode(storage)
        parse_location("storage", storage)
    elif _is_in_memory(storage):
        raise TypeError(f"storage: {storage!r} is in the memory of this process and cannot be sent")
    if options.secret is not None:
        options = replace(options, secret=Secret(options.secret.reveal(), pickle_text=True))
    level = min(logs.level_of(logs.server), logging.WARNING)
    try:
        return pickle.dumps((storage, options, die_with_parent, level))
    except Exception as error:  # of any kind: the object is another library's
        raise TypeError(
            f"storage: {storage!r} cannot be sent to another process: {error}"
        ) from error


def _is_in_memory(storage: object) -> bool:
    """Tell whether an object is a zarr store whose pickle would copy its values."""
    if "zarr.storage" not in sys.modules:
        return False
    from zarr.storage import MemoryStore, WrapperStore

    while isinstance(storage, WrapperStore):
        storage = storage._store
    return isinstance(storage, MemoryStore)


def _start(link: socket.socket, output: IO[bytes]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "ucxstore.server.child"],
        stdin=link.fileno(),
        stdout=output,
        stderr=output,
        process_group=0,  # Ctrl-C reaches only this process, which then ends the other
    )


def _end(process: subprocess.Popen[bytes], link: socket.socket, timeout: float) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    link.close()
