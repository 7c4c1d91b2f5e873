"""The listening host of a pair: start, kill and end servers as the other host asks."""

import os
import signal
import time
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

import numpy as np

from ucxstore.base.address import Address, HostPort
from ucxstore.base.errors import ProtocolError, ServerLostError, UcxStoreError
from ucxstore.base.foreign import Fields
from ucxstore.base.options import check_progress, normalize_ucx
from ucxstore.base.secret import Secret
from ucxstore.base.showing import one_line
from ucxstore.base.zarr_compat import cpu
from ucxstore.cli.doctor.pair import PORTS
from ucxstore.cli.doctor.pair.mailbox import Answering
from ucxstore.cli.doctor.pair.reporting import hide_in
from ucxstore.cli.doctor.pair.sides import Side, machine_sum
from ucxstore.server import Server
from ucxstore.server.spawn import ServerProcess
from ucxstore.stores.store import UcxStore

# Of the messages: if the hosts have other releases, they may not know each other's.
VERSION = 2

# Bytes that a server may take, and that a value which this host makes may have.
_MEMORY = 1 << 30
_MOST_VALUE = 64 << 20
_MOST_VALUES = 100

# Seconds until the other host counts as gone once its connection has ended. If it has vanished from
# the network, the connection may stay; then it counts as gone if no request comes in the time that
# it has named, which may be this long.
GONE_SECONDS = 15.0
_LONGEST_SILENCE = 3600.0

# Seconds that a server may take to start, whatever the other host says.
_MOST_START_SECONDS = 120.0

_LOOK_SECONDS = 1.0

# Sessions of this process at its own server.
_OUR_SESSIONS = 1


class Listening:
    """Answer the other host's requests. A context manager; leaving it ends all servers.

    Parameters
    ----------
    bind : HostPort
        Where to listen. With port 0, all ports are any free ones.
    secret : Secret
    side : Side
        The facts about this host.
    say : callable
        Prints a line.
    hiding : callable
        Takes out of a text what the other host's report must not have.
    """

    def __init__(
        self,
        bind: HostPort,
        secret: Secret,
        side: Side,
        say: Callable[[str], object],
        hiding: Callable[[str], str],
    ) -> None:
        self._bind = bind
        self._secret = secret
        self._side = side
        self._say = say
        self._hiding = hiding
        self._server = Server("memory://", bind, secret=secret, memory=_MEMORY)
        self.port = Address.parse(self._server.address).servers[0].port
        self._answering = Answering(self._store_of(self.port))
        self._trial: ServerProcess | None = None
        self._trial_store: UcxStore | None = None
        self._told = ""
        self._paired = False
        self._silence = 0.0
        self._done = False

    def serve(self, wait: float) -> None:
        """Answer until the other host has said that it is done.

        Parameters
        ----------
        wait : float
            Seconds in which it must come.

        Raises
        ------
        TimeoutError
            If it does not come.
        ServerLostError
            If it is gone before it is done.
        """
        deadline = time.monotonic() + wait
        seen = time.monotonic()
        while not self._done:
            try:
                request = self._answering.wait(_LOOK_SECONDS)
            except ProtocolError:
                self._answering.answer(None, {})
                continue
            now = time.monotonic()
            if request is not None:
                self._handle(request)
                seen = time.monotonic()
                if self._paired:
                    deadline = seen + self._silence
            elif not self._paired and now > deadline:
                raise TimeoutError(f"no host has come within {wait:g} s")
            elif self._paired:
                if self._server.sessions > _OUR_SESSIONS:
                    seen = now
                if now - seen > GONE_SECONDS or now > deadline:
                    raise ServerLostError("the other host is gone before it was done")

    def _handle(self, request: Fields) -> None:
        try:
            answer = self._answer_to(request)
        except (UcxStoreError, OSError, ValueError, TypeError) as error:
            answer = {"error": one_line(error)}
        try:
            self._answering.answer(request, hide_in(answer, self._hiding))
        except ProtocolError:  # it has no number
            self._answering.answer(None, {})

    def _answer_to(self, request: Fields) -> Mapping[str, Any]:
        match request.text("what"):
            case "hello":
                return self._greet(request)
            case "serve":
                return self._serve(request)
            case "processors":
                return {"seconds": processor_seconds(self._serving().pid)}
            case "make":
                return {"sums": self._make_values(request)}
            case "sum":
                return {"sums": self._sum_values(request)}
            case "kill":
                os.kill(self._serving().pid, signal.SIGKILL)
                return {}
            case "output":
                return {"text": self._output()}
            case "done":
                self._done = True
                return {}
        raise request.wrong("what")

    def _greet(self, request: Fields) -> Mapping[str, Any]:
        theirs = request.integer("version")
        if theirs != VERSION:
            raise ValueError(
                f"version {VERSION} of these messages, not {theirs}: install the same release of "
                "ucxstore on both hosts"
            )
        self._silence = min(float(request.number("silence")), _LONGEST_SILENCE)
        self._paired = True
        self._say("paired with the other host, which prints the report")
        same = request.text("machine") == machine_sum()
        return {"side": asdict(self._side), "same_machine": same}

    def _serve(self, request: Fields) -> Mapping[str, Any]:
        """Start a new server for a trial, after the end of the last one."""
        network, tls = request.text("network"), request.text("tls")
        progress = check_progress(request.text("progress"))
        over_ucx = network != "tcp"
        self._end_trial()
        port = self._bind.port
        self._trial = Server.spawn(
            "memory://",
            HostPort(self._bind.host, port + 1 if port else 0),
            start_timeout=min(request.number("seconds"), _MOST_START_SECONDS),
            secret=self._secret,
            memory=_MEMORY,
            ucx=dict(normalize_ucx({"TLS": tls} if tls else None)),
            progress=progress,
            network=network,
            data_ports=(port + 2, port + PORTS - 1) if port and over_ucx else None,
        )
        told = " ".join(word for word in (network, tls, progress) if word)
        if told != self._told:
            self._say(f"serving over {told}")
            self._told = told
        started = Address.parse(self._trial.address).servers[0].port
        self._trial_store = self._store_of(started)
        return {"port": started}

    def _make_values(self, request: Fields) -> dict[str, int]:
        store = self._serving_store()
        sums: dict[str, int] = {}
        for size in _sizes(request):
            value = os.urandom(size)
            store.set_sync(f"theirs/{size}", cpu.Buffer.from_bytes(value))
            sums[f"theirs/{size}"] = zlib.crc32(value)
        return sums

    def _sum_values(self, request: Fields) -> dict[str, int]:
        store = self._serving_store()
        sums: dict[str, int] = {}
        for key in request.texts("keys")[:_MOST_VALUES]:
            found = store.get_sync(key)
            if found is not None:
                sums[key] = zlib.crc32(np.ascontiguousarray(found.as_numpy_array()))
        return sums

    def _output(self) -> str:
        """Return what the server of the trial has printed, but for its address."""
        lines = [] if self._trial is None else self._trial.output.splitlines()
        return "\n".join(line for line in lines if not line.startswith("serving "))

    def _serving(self) -> ServerProcess:
        if self._trial is None or self._trial.returncode is not None:
            raise ValueError("no server of a trial is running")
        return self._trial

    def _serving_store(self) -> UcxStore:
        self._serving()
        assert self._trial_store is not None
        return self._trial_store

    def _store_of(self, port: int) -> UcxStore:
        """Return a store of a server on this host, which uses no network."""
        loopback = {"0.0.0.0": "127.0.0.1", "::": "::1"}
        host = loopback.get(self._bind.host, self._bind.host)
        address = Address((HostPort(host, port),))
        return UcxStore(address, secret=self._secret, local="auto")

    def _end_trial(self) -> None:
        if self._trial_store is not None:
            self._trial_store.close()
        if self._trial is not None:
            self._trial.close(timeout=1.0)
        self._trial = self._trial_store = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end_trial()
        self._server.close()


def processor_seconds(pid: int) -> float:
    """Return the seconds of processors that a process has used, all its threads together."""
    with suppress(FileNotFoundError, ProcessLookupError):
        # After the name, which may have spaces and brackets; then the third field is the first.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    raise ValueError(f"process {pid} has ended")


def _sizes(request: Fields) -> list[int]:
    found = request.plain.get("sizes")
    if not isinstance(found, list) or len(found) > _MOST_VALUES:
        raise request.wrong("sizes")
    for size in found:
        if type(size) is not int or not 0 <= size <= _MOST_VALUE:
            raise request.wrong("sizes")
    return found
