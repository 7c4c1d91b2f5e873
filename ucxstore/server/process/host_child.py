"""The process of a server that processes of its host share: ``... -m THIS FOLDER``.

It reads what to serve from its standard input. It ends some time after the last process that
attends in its folder has ended, or once it is told to.
"""

import errno
import os
import pickle
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from ucxstore.base import logs
from ucxstore.base.address import Address
from ucxstore.base.showing import one_line
from ucxstore.server.options.server_options import ServerOptions
from ucxstore.server.process.foreground import serve
from ucxstore.server.process.host_folder import HostFolder, HostState
from ucxstore.server.server import Server

# Seconds for which a server stays that nobody attends: a worker that is started again finds it.
LINGER_SECONDS = 15.0

# Seconds between looks for processes that attend.
_LOOK_SECONDS = 0.2

# Seconds for the lock of an earlier server that is just ending.
_LOCK_SECONDS = 10.0


def main(path: str) -> int:
    """Serve what comes from standard input, and return the exit status."""
    folder = HostFolder(Path(path))
    try:
        with os.fdopen(os.dup(sys.stdin.fileno()), "rb") as data:
            storage, options, level = pickle.load(data)
        logs.configure(level)
        with folder.serving() as lock:
            if not lock.take(_LOCK_SECONDS):
                raise TimeoutError(f"{path}: another process serves there")
            _serve(folder, storage, options)
    except Exception as error:
        print(f"ucxstore: {one_line(error)}", file=sys.stderr)
        with suppress(OSError):
            folder.failure.write_bytes(_pickled(error))
        return 1
    return 0


def _serve(folder: HostFolder, storage: Any, options: ServerOptions) -> None:
    reader, writer = os.pipe()
    alone = folder.attending(shared=False)

    def started(server: Server) -> None:
        folder.write(HostState(server.address, server.identity))
        thread = threading.Thread(target=watch, name="ucxstore-attended", daemon=True)
        thread.start()

    def watch() -> None:
        left_at = None
        while not folder.ends:
            now = time.monotonic()
            if not alone.take():
                left_at = None
            elif left_at is None or now - left_at < LINGER_SECONDS:
                alone.release()
                left_at = now if left_at is None else left_at
            else:
                break  # nobody comes any more, as it holds the lock
            time.sleep(_LOOK_SECONDS)
        os.close(writer)

    try:
        try:
            serve(storage, options, started=started, watch=reader)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or not options.bind.port:
                raise
            # Another program has the port that the server before had.
            bind = replace(options.bind, port=0)
            serve(storage, replace(options, bind=bind), started=started, watch=reader)
        if alone.is_held or folder.ends:
            folder.remove()
    finally:
        alone.release()


def _pickled(error: Exception) -> bytes:
    """Pickle an error, or what it says."""
    try:
        data = pickle.dumps(error)
        pickle.loads(data)
    except Exception:
        return pickle.dumps(RuntimeError(f"{type(error).__name__}: {error}"))
    return data


def port_of(state: HostState | None) -> int:
    """Return the port of a host's last server, which the next one takes; 0 for any."""
    return 0 if state is None else Address.parse(state.address).servers[0].port


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
