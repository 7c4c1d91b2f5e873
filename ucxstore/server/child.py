"""The process that `Server.spawn` starts: ``python -m ucxstore.server.child``.

Its standard input is one end of a socket pair. It reads what to serve from there, and answers with
its address. With `die_with_parent`, it ends when the parent's end is closed.
"""

import os
import pickle
import socket
import sys

from ucxstore.base import logs
from ucxstore.base.errors import UcxStoreError
from ucxstore.base.showing import one_line
from ucxstore.server.process.foreground import serve


def main() -> int:
    """Serve what the parent has sent, and return the exit status."""
    with socket.socket(fileno=os.dup(sys.stdin.fileno())) as parent:
        try:
            with parent.makefile("rb") as data:
                storage, options, die_with_parent, level = pickle.load(data)
            logs.configure(level)
            serve(
                storage,
                options,
                started=lambda server: parent.sendall(f"{server.address}\n".encode()),
                watch=parent.fileno() if die_with_parent else None,
            )
        except (UcxStoreError, OSError, ValueError, TypeError) as error:
            print(f"ucxstore: {one_line(error)}", file=sys.stderr)
            return 2 if isinstance(error, ValueError | TypeError) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
