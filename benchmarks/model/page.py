"""The tables of docs/scale.md: what was measured, and what the model makes of it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from benchmarks.model.constants import (
    CONNECTIONS,
    ENDS,
    LARGE,
    LOCAL,
    NETWORKS,
    REQUESTS,
    Constants,
    Figures,
)
from benchmarks.model.load import Load
from benchmarks.model.play import Outcome, Ways, play
from benchmarks.report import number
from ucxstore.drawing.tables import markdown_rows

FILE = Path(__file__).parents[2] / "docs/scale.md"
_BEGIN, _END = "<!-- model -->\n", "<!-- /model -->"

_WAYS = {**NETWORKS, LOCAL: "the local plane"}
_UNITS = {"bytes of a connection": "kB", "descriptors of a connection": ""}

_SMALL = 16384
_SIZES = {LARGE: "1 MiB", _SMALL: "16 KiB"}
_EXPONENTS = (0.0, 0.6, 0.8, 1.0, 1.2)

# What may be done about hot keys.
_REMEDIES = {
    "nothing": Ways(),
    "4 threads a server": Ways(threads=4),
    "chunks of a quarter": Ways(parts=4),
    "4 copies of the 100 hottest keys": Ways(copies=4),
    "16 copies of the 100 hottest keys": Ways(copies=16),
    "a cache in each node": Ways(group=1),
    "a cache shared by 32 nodes": Ways(group=32),
}


def tables(figures: Figures, network: str, load: Load) -> str:
    """Return the tables as Markdown.

    Parameters
    ----------
    figures : Figures
    network : str
        A key of `NETWORKS`.
    load : Load
        Its size and exponent are those of the last table; the others have several of them.
    """
    return measured(figures, network) + simulated(Constants.of(figures, network), load)


def measured(figures: Figures, network: str) -> str:
    """Return the tables that no simulation is needed for."""
    return _parts(
        {
            f"Measured on {figures.machine['processor']}:": _rows(
                ("", "at the server", "at the client"), _measured(figures)
            ),
            f"A rechunk of {_PIECES:,} pieces of {_SIZES[LARGE]} a node over {NETWORKS[network]}, "
            "each written once and read once:": _rows(
                ("nodes", *map("{:,}".format, _NODES)), _all_to_all(figures, network)
            ),
        }
    )


def simulated(constants: Constants, load: Load) -> str:
    """Return the tables of the simulation."""

    @cache
    def played(exponent: float, nbytes: int, ways: Ways) -> Outcome:
        return play(replace(load, exponent=exponent, nbytes=nbytes), constants, ways)

    def hot() -> Iterator[tuple[str, ...]]:
        for exponent in _EXPONENTS:
            one = played(exponent, LARGE, Ways())
            yield f"{exponent:g}" if exponent else "0: all alike", *_outcome(one)

    def remedies() -> Iterator[tuple[str, ...]]:
        for name, ways in _REMEDIES.items():
            ones = [played(load.exponent, nbytes, ways) for nbytes in _SIZES]
            times = (f"{number(1e3 * one.seconds)} ms" for one in ones)
            yield name, *times, f"{ones[0].hottest:,}", f"{ones[0].sent:,}"

    asked = f"{load.nodes:,} nodes, {load.requests} gets each, {load.at_once} at a time"
    return _parts(
        {
            f"{asked}, of {load.keys:,} keys of {_SIZES[LARGE]}:": _rows(
                ("exponent", "time", "median get", "99% of gets", "hottest server", "its part"),
                hot(),
            ),
            f"The same with the exponent {load.exponent:g}:": _rows(
                (
                    "remedy",
                    *(f"time, {size}" for size in _SIZES.values()),
                    "hottest server sends",
                    "all send",
                ),
                remedies(),
            ),
        }
    )


def put_in(page: str, made: str) -> str:
    """Return the page with these tables in the place of those that it has."""
    before, begin, rest = page.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not (begin and end):
        raise ValueError(f"the page has no lines {_BEGIN.strip()!r} and {_END!r}")
    return f"{before}{begin}\n{made}{end}{after}"


def _parts(parts: Mapping[str, str]) -> str:
    return "".join(f"{title}\n\n{table}\n\n" for title, table in parts.items())


def _rows(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join(markdown_rows(header, rows))


def _measured(figures: Figures) -> Iterator[tuple[str, ...]]:
    for way, name in _WAYS.items():
        for what, title in (REQUESTS | (CONNECTIONS if way in NETWORKS else {})).items():
            unit = _UNITS.get(what, "us")
            ends = (f"{number(figures.of(way, what, end))} {unit}".strip() for end in ENDS)
            yield f"{name}: {title}", *ends


def _outcome(one: Outcome) -> tuple[str, ...]:
    return (
        f"{number(1e3 * one.seconds)} ms",
        f"{number(1e3 * one.latency(0.5))} ms",
        f"{number(1e3 * one.latency(0.99))} ms",
        f"{one.hottest:,} gets",
        f"{one.hottest / one.sent:.1%}",
    )


# ---- a rechunk, in which each node has connections to nearly all others ----

_NODES = (16, 100, 1000)
_PIECES = 1000


def _all_to_all(figures: Figures, network: str) -> Iterator[tuple[str, ...]]:
    constants = Constants.of(figures, network)
    connections = [2 * servers_met(nodes, 2 * _PIECES) for nodes in _NODES]

    def held(what: str) -> list[float]:
        """Return what a node's connections take, half of them at the client's end."""
        one = sum(figures.of(network, what, end) for end in ENDS) / 2
        return [one * count for count in connections]

    costs = constants.server_get, constants.client_get, constants.server_set, constants.client_set
    work = _PIECES * sum(cost.of(LARGE) for cost in costs)
    connecting = [seconds / 1e6 for seconds in held("connect")]
    others = [1 - 1 / nodes for nodes in _NODES]
    wire = 2 * _PIECES * LARGE / constants.bandwidth
    yield _line("requests to other nodes", "", (2 * _PIECES * part for part in others))
    yield _line("sent, and as much received", "GB", (2e-9 * _PIECES * LARGE * p for p in others))
    yield _line("connections of a node, both ends", "", connections)
    yield _line("descriptors of these", "", held("descriptors of a connection"))
    yield _line("memory of these", "MB", (each / 1e3 for each in held("bytes of a connection")))
    yield _line("processor time of the requests", "s", (work * part for part in others))
    yield _line("processor time to connect", "s", connecting)
    yield _line("time of the network adapter", "s", (wire * part for part in others))
    yield _line("connections a minute after the end", "", (0.0 for _ in _NODES))


def servers_met(nodes: int, requests: int) -> float:
    """Return to how many of the other nodes so many requests go, on average."""
    return (nodes - 1) * (1 - (1 - 1 / nodes) ** requests)


def _line(name: str, unit: str, values: Iterable[float]) -> tuple[str, ...]:
    shown = (number(value) if unit else f"{value:,.0f}" for value in values)
    return name, *(f"{value} {unit}".strip() for value in shown)
