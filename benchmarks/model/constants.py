"""The constants of the model, which the row `costs` of `make bench` has measured."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

# The figures of the page. `python -m benchmarks.model --from build/bench.json` renews them.
FILE = Path(__file__).with_name("constants.json")

# The row of `make bench`, and what it measures at both ends.
ROW = "costs"
SMALL, LARGE = 4096, 1 << 20
REQUESTS = {
    f"{kind} {nbytes}": f"a {kind} of {size}"
    for kind in ("get", "set")
    for nbytes, size in ((SMALL, "4 KiB"), (LARGE, "1 MiB"))
}
CONNECTIONS = {
    "connect": "to connect",
    "bytes of a connection": "memory of a connection",
    "descriptors of a connection": "descriptors of a connection",
}
ENDS = ("server", "client")
NETWORKS = {"tcp": "TCP without UCX", "ucx": "UCX over TCP"}
LOCAL = "local"


def name_of(way: str, what: str, end: str) -> str:
    """Return the name of a line of the row: by which way, what was measured, and at which end."""
    return f"{way}: {(REQUESTS | CONNECTIONS)[what]}, {end}"


@dataclass(frozen=True, slots=True)
class Figures:
    """What was measured, and where.

    Parameters
    ----------
    machine : mapping
        As `make bench` describes it.
    medians : mapping
        By the names of the lines, in their units.
    """

    machine: Mapping[str, str]
    medians: Mapping[str, float]

    @classmethod
    def of_record(cls, path: Path) -> Self:
        """Read them from a record of `make bench`.

        Raises
        ------
        ValueError
            If it is none, or has no row of costs.
        """
        record = _read(path)
        for row in record.get("rows", []):
            if row.get("name") == ROW:
                medians = {line["what"]: float(line["median"]) for line in row["lines"]}
                return cls(record["machine"], medians)
        raise ValueError(f"{path}: no row {ROW!r} in this record: make bench measures it")

    @classmethod
    def read(cls, path: Path = FILE) -> Self:
        """Read them from a file that `write` has written."""
        return cls(**_read(path))

    def write(self, path: Path = FILE) -> None:
        found = {"machine": dict(self.machine), "medians": dict(self.medians)}
        path.write_text(json.dumps(found, indent=1) + "\n")

    def of(self, way: str, what: str, end: str) -> float:
        """Return one figure.

        Raises
        ------
        ValueError
            If it is missing.
        """
        name = name_of(way, what, end)
        if name not in self.medians:
            raise ValueError(f"the row {ROW!r} has no line {name!r}: measure it with make bench")
        return self.medians[name]


class Cost(NamedTuple):
    """Seconds that a thread works for a request: some for each, and some for each byte."""

    fixed: float
    byte: float

    @classmethod
    def through(cls, small: float, large: float) -> Self:
        """Return the cost by those of values of `SMALL` and of `LARGE` bytes."""
        byte = max(large - small, 0.0) / (LARGE - SMALL)
        return cls(max(small - byte * SMALL, 0.0), byte)

    def of(self, nbytes: int) -> float:
        """Return the seconds for a value of so many bytes."""
        return self.fixed + self.byte * nbytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """What requests take of both ends.

    Parameters
    ----------
    server_get, client_get, server_set, client_set : Cost
        Over a network.
    local_get : Cost
        Of a client of the server's host.
    bandwidth : float
        Bytes in a second that a node can send, and that it can receive. Given, not measured.
    latency : float
        Seconds of a message from one node to another. Given, not measured.
    """

    server_get: Cost
    client_get: Cost
    server_set: Cost
    client_set: Cost
    local_get: Cost
    bandwidth: float = 25e9 / 8
    latency: float = 30e-6

    @classmethod
    def of(cls, figures: Figures, network: str) -> Self:
        """Take the constants of a network from what was measured.

        Raises
        ------
        ValueError
            If one of them is missing.
        """

        def cost(way: str, kind: str, end: str) -> Cost:
            small, large = (figures.of(way, f"{kind} {nbytes}", end) for nbytes in (SMALL, LARGE))
            return Cost.through(small / 1e6, large / 1e6)

        return cls(
            server_get=cost(network, "get", "server"),
            client_get=cost(network, "get", "client"),
            server_set=cost(network, "set", "server"),
            client_set=cost(network, "set", "client"),
            local_get=cost(LOCAL, "get", "client"),
        )


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}: not JSON: {error}") from None
    if not isinstance(found, dict):
        raise ValueError(f"{path}: not a JSON object")
    return found
