"""Processes with a planted mistake each, which the matrix must notice."""

import os
from contextlib import suppress
from itertools import count
from multiprocessing.connection import Connection

from tests.adversity.deaths import processes
from tests.adversity.deaths.cases import Lane
from tests.adversity.deaths.processes import Aftermath, Client, Held, Job, be_client, be_server
from tests.adversity.deaths.trips import disarm
from ucxstore import UcxStoreError


class _WrittenTo(Client):
    def look(self, before: Held | None) -> Aftermath:
        self._request.memory.views[0][..., -1] ^= 1
        return super().look(before)


class _WritesBeside(Client):
    def _act(self) -> bool:
        whole = self._request.memory.views[0].base
        assert whole is not None
        whole[..., 0] ^= 1
        return super()._act()


class _RaisesOthers(Client):
    def _act(self) -> bool:
        with suppress(UcxStoreError):
            super()._act()
        raise RuntimeError("not one of ours")


class _Leaks(Client):
    def look(self, before: Held | None) -> Aftermath:
        os.dup(0)
        return super().look(before)


class _Aborts(Client):
    def _act(self) -> bool:
        os.abort()


def _be(kind: type[Client], channel: Connection, host: int) -> None:
    jobs = count()

    def client(job: Job) -> Client:
        return kind(job) if next(jobs) else Client(job)  # the first job must succeed

    processes.Client = client  # type: ignore[assignment]
    processes.ENDS_WITHIN = 0.5
    be_client(channel, host)


def is_written_to(channel: Connection, host: int = 0) -> None:
    """Be a client whose caller's memory changes after the end of a call."""
    _be(_WrittenTo, channel, host)


def writes_beside(channel: Connection, host: int = 0) -> None:
    """Be a client that writes beside the memory that it was given."""
    _be(_WritesBeside, channel, host)


def raises_others(channel: Connection, host: int = 0) -> None:
    """Be a client whose exception is not one of ours."""
    _be(_RaisesOthers, channel, host)


def leaks(channel: Connection, host: int = 0) -> None:
    """Be a client that keeps a descriptor."""
    _be(_Leaks, channel, host)


def aborts(channel: Connection, host: int = 0) -> None:
    """Be a client that ends itself, as a library may."""
    _be(_Aborts, channel, host)


def server_leaks(channel: Connection, lane: Lane, root: str, bind: str, host: int = 0) -> None:
    """Be a server that keeps a descriptor."""

    def leak() -> None:
        os.dup(0)
        disarm()

    processes.disarm = leak  # type: ignore[attr-defined]
    be_server(channel, lane, root, bind, host)
