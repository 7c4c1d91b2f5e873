"""Honest clients: what they do, and how long each operation took."""

import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Literal, NamedTuple

import numpy as np
from zarr.core.buffer import cpu
from zarr.core.sync import sync

from tests.eventually import nothing_happens
from tests.values import keys_of
from ucxstore import UcxStore
from ucxstore.base.errors import UcxStoreError
from ucxstore.base.options import UcxValue

FOLDER = "honest"
KEYS = 16
BYTES = 64 << 10
_SMALL = 1000

# Between two operations: so many clients leave most of a machine to others.
_PAUSE_SECONDS = 0.002


class Seen(NamedTuple):
    """What a client has seen.

    Parameters
    ----------
    seconds : mapping of str to list of float
        How long each operation took, by kind.
    refused : list of str
        Errors.
    """

    seconds: dict[str, list[float]]
    refused: list[str]


class Times(NamedTuple):
    """The median and the 99th percentile of many operations, in seconds."""

    p50: float
    p99: float


def fill(store: UcxStore) -> None:
    """Write what honest clients read."""
    for key in range(KEYS):
        value = np.full(BYTES, key, "u1")
        store.set_sync(f"{FOLDER}/{key}", cpu.Buffer.from_array_like(value))


def work(
    address: str,
    secret: bytes,
    number: int,
    ucx: Mapping[str, UcxValue],
    local: Literal["auto", "ucx"],
    until: float,
) -> Seen:
    """Get, ping, set and list in turn until the time is over."""
    seen = Seen({"get": [], "ping": [], "set": [], "list": []}, [])
    out = np.empty(BYTES, "u1")
    small = cpu.Buffer.from_array_like(np.full(_SMALL, number, "u1"))
    with UcxStore(
        address, ucx=ucx, local=local, secret=secret or None, connect_timeout=60.0
    ) as store:
        try:
            store.ping_sync()
        except UcxStoreError as error:
            seen.refused.append(f"{type(error).__name__}: {error}")
        turn = 0
        while time.monotonic() < until:
            turn += 1
            key = turn % KEYS
            acts: dict[str, Callable[[], object]] = {
                "get": partial(store.get_into_sync, f"{FOLDER}/{key}", out),
                "ping": store.ping_sync,
                "set": partial(store.set_sync, f"{FOLDER}/own-{number}", small),
                "list": lambda: sync(keys_of(store, f"{FOLDER}/")),
            }
            for kind, act in acts.items():
                begun = time.monotonic()
                try:
                    act()
                except UcxStoreError as error:
                    seen.refused.append(f"{kind}: {type(error).__name__}: {error}")
                else:
                    seen.seconds[kind].append(time.monotonic() - begun)
                    assert kind != "get" or (out == key).all()
                nothing_happens(_PAUSE_SECONDS)
    return seen


def times(all_seen: list[Seen], kind: str) -> Times:
    """Return the times of an operation, of all clients together."""
    seconds = sorted(each for seen in all_seen for each in seen.seconds[kind])
    if not seconds:
        return Times(float("inf"), float("inf"))
    return Times(statistics.median(seconds), seconds[int(0.99 * (len(seconds) - 1))])
