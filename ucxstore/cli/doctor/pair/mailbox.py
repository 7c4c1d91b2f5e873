"""Messages between the two hosts, as values of a small server at the listening one.

The server's handshake authenticates both sides, so this needs no protocol of its own. One request
is under way at a time: the asking side writes it under a key, if the key is free, and waits for the
answer under another one.
"""

import json
import time
import uuid
from collections.abc import Mapping
from typing import Any

from ucxstore.base.foreign import Fields
from ucxstore.base.zarr_compat import cpu
from ucxstore.cli.common.status import CommandError
from ucxstore.stores.store import UcxStore

_REQUEST = "request"
_ANSWERS = "answers"

# Seconds between looks.
_PAUSE = 0.02

_MOST_BYTES = 1 << 20


class OtherSideError(CommandError):
    """The other host could not do what it was asked for, or does not answer."""


class Asking:
    """The side that asks.

    Parameters
    ----------
    store : UcxStore
        Of the server at the listening host.
    timeout : float
        Seconds to wait for an answer.
    """

    def __init__(self, store: UcxStore, timeout: float) -> None:
        self._store = store
        self._timeout = timeout

    def ask(self, what: str, **fields: object) -> Fields:
        """Send a request, and return the answer.

        Raises
        ------
        OtherSideError
            If the other side refuses it, or does not answer in time.
        UcxStoreError
            If its server cannot be reached.
        """
        number = uuid.uuid4().hex
        request = _packed({"number": number, "what": what, **fields})
        deadline = time.monotonic() + self._timeout
        while not self._store.add_sync(_REQUEST, request):
            self._pause(deadline, what)
        key = f"{_ANSWERS}/{number}"
        while (found := self._store.get_sync(key)) is None:
            self._pause(deadline, what)
        self._store.delete_sync(key)
        answer = Fields.read(found.to_bytes(), "an answer of the other host", _MOST_BYTES)
        if "error" in answer.plain:
            raise OtherSideError(f"the other host: {answer.text('error')}")
        return answer

    def _pause(self, deadline: float, what: str) -> None:
        if time.monotonic() >= deadline:
            raise OtherSideError(
                f"the other host has not answered {what!r} within {self._timeout:g} s"
            )
        time.sleep(_PAUSE)


class Answering:
    """The side that answers, and stores requests and answers.

    Parameters
    ----------
    store : UcxStore
        Of the server in this process.
    """

    def __init__(self, store: UcxStore) -> None:
        self._store = store

    def wait(self, seconds: float) -> Fields | None:
        """Return the next request; ``None`` if none comes within a time."""
        deadline = time.monotonic() + seconds
        while (found := self._store.get_sync(_REQUEST)) is None:
            if time.monotonic() >= deadline:
                return None
            time.sleep(_PAUSE)
        return Fields.read(found.to_bytes(), "a request of the other host", _MOST_BYTES)

    def answer(self, request: Fields | None, fields: Mapping[str, Any]) -> None:
        """Answer a request, and make room for the next one.

        Parameters
        ----------
        request : Fields or None
            ``None`` for one that could not be read, which gets no answer.
        fields : mapping
        """
        if request is not None:
            number = request.hexadecimal("number", 16).hex()
            self._store.set_sync(f"{_ANSWERS}/{number}", _packed(fields))
        self._store.delete_sync(_REQUEST)


def _packed(fields: Mapping[str, Any]) -> cpu.Buffer:
    return cpu.Buffer.from_bytes(json.dumps(fields).encode())
