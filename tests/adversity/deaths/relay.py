"""A box between a client and a server that hurts their connection at an exact byte."""

import select
import socket
import struct
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from tests.adversity.deaths.cases import OF_BYTES, OF_SILENCE, Case, Direction, Hurt, Side, Stage

_PIECE = 256 * 1024
_NOW = struct.pack("ii", 1, 0)  # SO_LINGER: a close resets


@dataclass(eq=False)
class Flow:
    """The bytes of one direction of a connection."""

    direction: Direction
    source: socket.socket
    target: socket.socket
    waiting: bytearray = field(default_factory=bytearray)
    ended: bool = False  # the source has said all
    swallows: bool = False  # reads, and passes nothing on
    stands: bool = False  # does not even read

    def reads(self) -> bool:
        return not (self.ended or self.stands or self.waiting)

    def writes(self) -> bool:
        return bool(self.waiting) and not self.stands


class Relay:
    """Pass everything between clients and one server until the hurt of a case is due.

    After `arm`, bytes in the case's direction are counted, and the hurt comes once, after enough of
    them. At the close it comes with the end of the direction's bytes.

    Parameters
    ----------
    place : tuple
        Host and port of the server.
    """

    def __init__(self, place: tuple[str, int]) -> None:
        self._place = place
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = "ucx://{}:{}".format(*self._listener.getsockname())
        self._flows: list[Flow] = []
        self._sockets: list[socket.socket] = []
        self._case: Case | None = None
        self._left = 0  # bytes before the hurt
        self._to_drop = 0
        self.hurts = 0
        self._ours, self._theirs = socket.socketpair()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def arm(self, case: Case, after: int) -> None:
        """Hurt as this case says, after so many bytes from now on."""
        self._left = after
        self._case = case

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ours.close()
        self._thread.join(20)
        assert not self._thread.is_alive()
        for sock in (*self._sockets, self._listener, self._theirs):
            sock.close()

    # ---- the thread ----

    def _run(self) -> None:
        while True:
            reading = [flow for flow in self._flows if flow.reads()]
            writing = [flow for flow in self._flows if flow.writes()]
            ready, writable, _ = select.select(
                [self._theirs, self._listener, *(flow.source for flow in reading)],
                [flow.target for flow in writing],
                [],
            )
            if self._theirs in ready:
                return
            if self._listener in ready:
                self._accept()
            for flow in writing:
                if flow.target in writable and flow.writes():
                    self._send(flow)
            for flow in reading:
                if flow.source in ready and flow.reads():
                    self._receive(flow)

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        self._keep(client)
        case = self._case
        if case is not None and not self._hurts_at_connect(case):
            case = None
        if case is not None and case.direction is Direction.TO_SERVER:
            # The server is not reached; nor is it later, while there is silence.
            self.hurts += 1
            if case.hurt is Hurt.RESET:
                self._reset(client)
            return
        try:
            server = socket.create_connection(self._place)
        except ConnectionRefusedError:  # it has closed
            self._reset(client)
            return
        self._keep(server)
        flows = [
            Flow(Direction.TO_SERVER, client, server),
            Flow(Direction.TO_CLIENT, server, client),
        ]
        self._flows += flows
        if case is not None:
            self._hurt(flows[1], case)

    def _hurts_at_connect(self, case: Case) -> bool:
        again = case.hurt in OF_SILENCE or self.hurts == 0
        return case.stage is Stage.CONNECT and again

    def _keep(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sockets.append(sock)

    def _receive(self, flow: Flow) -> None:
        try:
            data = flow.source.recv(_PIECE)
        except OSError:  # reset
            data = b""
        if flow.swallows:
            flow.ended = not data
            return
        if not data:
            self._end(flow)
            return
        case = self._case
        if case is None or self.hurts or not self._counts(flow, case):
            self._pass_on(flow, data)
        elif len(data) > self._left:
            self._hurt_at(flow, data, case)
        else:
            self._left -= len(data)
            self._pass_on(flow, data)

    def _counts(self, flow: Flow, case: Case) -> bool:
        by_bytes = case.stage is not Stage.CLOSE or case.hurt in OF_BYTES
        return by_bytes and case.direction is flow.direction

    def _hurt_at(self, flow: Flow, data: bytes, case: Case) -> None:
        rest = data[self._left :]
        self._pass_on(flow, data[: self._left])
        if case.hurt not in OF_BYTES:
            self._hurt(flow, case)
            return
        self.hurts += 1
        if case.hurt is Hurt.FLIP:
            rest = bytes([rest[0] ^ 4]) + rest[1:]
        elif case.hurt is Hurt.DROP:
            self._to_drop = case.amount
        else:
            rest = rest[: case.amount] + rest
        self._pass_on(flow, rest)

    def _end(self, flow: Flow) -> None:
        flow.ended = True
        case = self._case
        if (
            case is not None
            and case.stage is Stage.CLOSE
            and case.direction is flow.direction
            and case.hurt not in OF_BYTES
            and not self.hurts
        ):
            self._hurt(flow, case)
            return
        if not flow.waiting:
            self._shut(flow)

    def _pass_on(self, flow: Flow, data: bytes) -> None:
        if self._case is not None and self._case.direction is flow.direction:
            dropped = min(self._to_drop, len(data))
            self._to_drop -= dropped
            data = data[dropped:]
        if data and flow.target.fileno() >= 0:
            flow.waiting += data
            self._send(flow)

    def _send(self, flow: Flow) -> None:
        try:
            sent = flow.target.send(flow.waiting)
        except BlockingIOError:
            return
        except OSError:  # whoever was to get it is gone
            flow.waiting.clear()
            flow.swallows = True
            self._shut(self._back(flow))
            return
        del flow.waiting[:sent]
        if flow.ended and not flow.waiting:
            self._shut(flow)

    def _shut(self, flow: Flow) -> None:
        with suppress(OSError):
            flow.target.shutdown(socket.SHUT_WR)

    def _back(self, flow: Flow) -> Flow:
        return next(
            other
            for other in self._flows
            if other.source is flow.target and other.target is flow.source
        )

    # ---- hurts of a connection ----

    def _hurt(self, flow: Flow, case: Case) -> None:
        """Hurt the connection that these bytes belong to, as the case says."""
        self.hurts += 1
        back = self._back(flow)
        flows = {flow.direction: flow, back.direction: back}
        if case.hurt is Hurt.RESET:
            # The survivor is told; to the other side it is as if nothing more came.
            to_survivor = Direction.TO_CLIENT if case.side is Side.SERVER else Direction.TO_SERVER
            self._reset(flows[to_survivor].target)
            for one in (flow, back):
                one.stands = True
        elif case.hurt is Hurt.LINK_DOWN:
            for one in (flow, back):
                one.stands = True
        else:
            # What is sent is lost on the way. Of a hurt sender, nothing gets back to it, either.
            flow.swallows = True
            flow.waiting.clear()
            if case.side is not case.receiver:
                back.swallows = True
                back.waiting.clear()

    def _reset(self, sock: socket.socket) -> None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NOW)
        sock.close()
