"""`Manager`: tell the service manager how the process does, as systemd's ``sd_notify``."""

import os
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Self


class Manager:
    """The service manager that has started this process, if there is one that wants to know.

    What is sent is a datagram; whether it arrives does not matter to the server.

    Parameters
    ----------
    address : str
        Of its socket: a path, or a name without a file that begins with ``"@"``. Empty for none.
    watchdog : float or None
        Seconds within which it must hear from the process; ``None`` if it does not wait for that.
    """

    def __init__(self, address: str = "", watchdog: float | None = None) -> None:
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self.watchdog = watchdog if address else None

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Self:
        """Find it in the environment: ``NOTIFY_SOCKET``, ``WATCHDOG_USEC``, ``WATCHDOG_PID``."""
        seconds = None
        with suppress(ValueError):
            is_mine = int(environment.get("WATCHDOG_PID") or os.getpid()) == os.getpid()
            microseconds = int(environment.get("WATCHDOG_USEC") or 0)
            seconds = microseconds / 1e6 if is_mine and microseconds > 0 else None
        return cls(environment.get("NOTIFY_SOCKET", ""), seconds)

    @property
    def is_there(self) -> bool:
        """Whether there is one."""
        return bool(self._address)

    def ready(self, status: str) -> None:
        """Say that the process serves, also after it has reloaded."""
        self._send("READY=1", f"STATUS={status}")

    def reloading(self) -> None:
        """Say that the process reloads what it has read at its start."""
        self._send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        """Say that the process ends."""
        self._send("STOPPING=1")

    def alive(self) -> None:
        """Say that the process is alive."""
        self._send("WATCHDOG=1")

    def _send(self, *lines: str) -> None:
        if not self._address:
            return
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.setblocking(False)
            sock.sendto("\n".join(lines).encode(), self._address)
