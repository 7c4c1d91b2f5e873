"""The process that takes the steps of a trial: ``python -m ucxstore.cli.doctor.pair.child``.

Its standard input is one end of a socket pair. An order comes from there, in a line of JSON; each
outcome goes back in a line. The process ends when the other end is closed: with its parent.
"""

import json
import os
import socket
import sys
import threading
from dataclasses import asdict
from typing import IO, Any

from ucxstore.base.secret import Secret
from ucxstore.cli.doctor.pair.mailbox import Asking
from ucxstore.cli.doctor.pair.measuring import Bench, take_steps
from ucxstore.cli.doctor.pair.trials import Trial
from ucxstore.stores.store import UcxStore


def main() -> int:
    """Take the steps that the parent has ordered; return the exit status."""
    with socket.socket(fileno=os.dup(sys.stdin.fileno())) as parent:
        orders = parent.makefile("rb")
        order: dict[str, Any] = json.loads(orders.readline())
        threading.Thread(
            target=_end_with_parent, args=(orders,), name="ucxstore-parent", daemon=True
        ).start()
        timeout = float(order["timeout"])
        options: dict[str, Any] = {
            "secret": Secret(bytes.fromhex(order["secret"])),
            "timeout": timeout,
            "connect_timeout": timeout,
            "local": "off",  # as if this were another host, also where it is none
        }
        control = UcxStore(order["control"], network="tcp", **options)
        bench = Bench(
            host=order["host"],
            trial=Trial(**order["trial"]),
            asking=Asking(control, timeout),
            options=options,
            timeout=timeout,
            seconds=float(order["seconds"]),
        )
        for outcome in take_steps(bench, order["steps"]):
            parent.sendall(f"{json.dumps(asdict(outcome))}\n".encode())
    return 0


def _end_with_parent(orders: IO[bytes]) -> None:
    while orders.readline():
        pass
    os._exit(1)


if __name__ == "__main__":
    status = main()
    # Without the interpreter's shutdown: a thread may still wait in UCX.
    os._exit(status)
