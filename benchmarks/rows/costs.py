"""What a request and a connection cost at both ends: the constants of docs/scale.md."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.children import run
from benchmarks.model.constants import (
    CONNECTIONS,
    ENDS,
    LARGE,
    LOCAL,
    NETWORKS,
    REQUESTS,
    ROW,
    SMALL,
    name_of,
)
from benchmarks.result import Line, Row, figure
from benchmarks.scale import Scale
from ucxstore import Server
from ucxstore.base.address import Address

_NETWORK: dict[str, Any] = {"local": "off", "connect_timeout": 60}
_OPTIONS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "tcp": ({"local": False}, _NETWORK | {"network": "tcp"}),
    "ucx": (
        {"local": False, "ucx": {"TLS": "tcp"}},
        _NETWORK | {"network": "ucx", "ucx": {"TLS": "tcp"}},
    ),
    LOCAL: ({}, {"local": "auto"}),
}
_SECONDS = 1e6, "us"
_UNITS = {
    "bytes of a connection": (1e-3, "kB"),
    "descriptors of a connection": (1.0, "descriptors"),
}


def measure(scale: Scale, folder: Path) -> Row:
    return Row(
        name=ROW,
        title="processor time of a request and a connection at both ends",
        lines=[line for way in _OPTIONS for line in _lines(way, scale)],
        notes=[
            "a request has one key, and 32 of them are under way at a time",
            f"a connection is one of {scale.held_connections}, each of which has moved a value",
        ],
    )


def _lines(way: str, scale: Scale) -> Iterator[Line]:
    of_server, client = _OPTIONS[way]
    held = scale.held_connections if way in NETWORKS else 0
    found: dict[str, list[list[float]]] = {}
    for _ in range(scale.cost_rounds):
        # At all addresses, so that a client may have several connections.
        with Server.spawn("memory://", bind="0.0.0.0:0", insecure=True, **of_server) as server:
            (place,) = Address.parse(server.address).servers
            once = run(
                "costs",
                address=f"ucx://127.0.0.1:{place.port}",
                pid=server.pid,
                client=client,
                sizes=[SMALL, LARGE],
                requests=scale.cost_requests,
                held=held,
            )
        for what, ends in once.items():
            found.setdefault(what, []).append(ends)
    for what in [*REQUESTS, *(CONNECTIONS if held else ())]:
        factor, unit = _UNITS.get(what, _SECONDS)
        for end, values in zip(ENDS, zip(*found[what], strict=True), strict=True):
            yield figure(name_of(way, what, end), [factor * value for value in values], unit)
