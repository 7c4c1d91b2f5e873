"""Write docs/network.md and its pictures from a record: all of it, and nothing else."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import median

from benchmarks import report
from benchmarks.network import content, goals, plan
from benchmarks.network.links import NETWORKS
from benchmarks.network.record import Cell, Crowd, Record
from benchmarks.network.windows import Window
from ucxstore.drawing import curves
from ucxstore.drawing.tables import markdown_rows

_RATES = "network-rates.svg"
_TAILS = "network-tails.svg"
_CPU = "network-cpu.svg"

_OPENING = """\
# Between hosts: what TCP gives

<!-- Made by `python -m benchmarks.network` of what it has measured. -->

This page shows what any transport between two processes can do over TCP on one machine, and
ucxstore beside it. It helps you judge a figure of a network: how far is it from what plain TCP
does in the same run? The [benchmarks](../benchmarks/README.md#between-hosts) say how each is
measured, and [transport.md](transport.md) explains ucxstore's ways.
"""

_NETWORK_NOTES = {
    "loopback": "server and clients on 127.0.0.1",
    "veth": "two network namespaces, joined by a virtual cable with packets of 1,500 bytes",
    "10 Gbit/s": "the same, and each end sends at most so much (`tbf`)",
    "1 Gbit/s": "the same, slower",
}

_END = """\

`make bench BENCH_ARGS="--only network"` measures yours, and writes this page anew. Rates and times
are medians; behind a slash stands the minimum, of times and of rates alike.
"""

type Figure = Callable[[Window], float | None]


def write(record: Record) -> str:
    """Return the page."""
    parts = [
        _OPENING,
        _about(record),
        _goals(record),
        _curves(record),
        *(_one_client(record, network) for network in record.networks()),
        *(_many_clients(record, network) for network in record.networks()),
        _crowds(record),
        _settings(record),
        _missing(record),
        _END,
    ]
    return "\n".join(part.strip("\n") + "\n" for part in parts if part)


def pictures(record: Record) -> dict[str, str]:
    """Return the pictures that the page shows, by the names of their files."""
    counts = _counts(record)
    if not counts:
        return {}
    marks = [f"{count}" for count in counts]
    return {
        name: str(
            curves.draw(
                title,
                _told(record, counts, figure, factor),
                list(_panels(record, counts, figure, factor)),
                marks,
                note=note,
                logarithmic=name == _TAILS,
            )
        )
        for name, title, note, figure, factor in _PICTURES
    }


_PICTURES: list[tuple[str, str, str, Figure, float]] = [
    (
        _RATES,
        "Values of 64 KiB: GB/s, by the number of active clients",
        "All clients together. More is better.",
        lambda window: window.rate,
        1,
    ),
    (
        _TAILS,
        "Values of 64 KiB: milliseconds within which 99 % came, by active clients",
        "Less is better. Each line is ten times the one below it.",
        lambda window: window.p99,
        1e3,
    ),
    (
        _CPU,
        "Values of 64 KiB: processor seconds a GB, by active clients",
        "Server and clients together. Less is better.",
        lambda window: window.cpu,
        1,
    ),
]


def _panels(
    record: Record, counts: Sequence[int], figure: Figure, factor: float
) -> Iterator[curves.Panel]:
    for network in record.networks():
        found = {
            way.name: [
                _scaled(
                    record.cell(network, way.name, "get", content.MIDDLE, count), figure, factor
                )
                for count in counts
            ]
            for way in plan.MANY_CLIENTS
        }
        there = {name: values for name, values in found.items() if any(values)}
        if there:
            yield curves.Panel(network, there)


def _scaled(cell: Cell | None, figure: Figure, factor: float) -> float | None:
    value = cell.median(figure) if cell else None
    return None if value is None else value * factor


def _told(record: Record, counts: Sequence[int], figure: Figure, factor: float) -> str:
    """Tell the figures of the most clients."""
    return " ".join(
        f"{panel.title}, {counts[-1]} clients: "
        + ", ".join(
            f"{name} {values[-1]:.3g}" for name, values in panel.curves.items() if values[-1]
        )
        + "."
        for panel in _panels(record, counts, figure, factor)
    )


def _counts(record: Record) -> list[int]:
    return sorted({cell.clients for cell in record.cells if cell.nbytes == content.MIDDLE})


# ---- the sections ----


def _about(record: Record) -> str:
    names = ("processor", "system", "Python", "ucxstore", "UCX")
    machine = "; ".join(
        f"{name}: {record.machine[name]}" for name in names if name in record.machine
    )
    lines = [f"The machine: {machine}.", ""]
    if record.quick:
        lines += [
            "**These figures mean nothing**: they are of a quick run, a test of the code.",
            "",
        ]
    busy = [part for part, load in record.load.items() if load.startswith("NOT IDLE")]
    if busy:
        lines += [f"The machine was not idle before these parts: {'; '.join(busy)}.", ""]
    rows = [[name, _NETWORK_NOTES[name]] for name in NETWORKS if name in record.networks()]
    return "\n".join([*lines, *markdown_rows(["network", "what it is"], rows)])


def _goals(record: Record) -> str:
    lines = goals.of(record)
    if not lines:
        return ""
    text = (
        'The goals of plain TCP (`network="tcp"`). A ratio is of medians, and in the next column '
        "of the best windows. Figures of sessions over UCX stand beside."
    )
    return f"## Goals\n\n{text}\n\n{report.markdown_lines(lines)}"


def _curves(record: Record) -> str:
    if not _counts(record):
        return ""
    shown = [f"![{title}](images/{name})" for name, title, *_ in _PICTURES]
    return "## By the number of clients\n\n" + "\n\n".join(shown)


def _one_client(record: Record, network: str) -> str:
    names = list(
        dict.fromkeys(
            cell.way
            for cell in record.cells
            if cell.network == network and cell.nbytes != content.MIDDLE
        )
    )
    if not names:
        return ""
    header = [
        "way",
        "100 MB, get: GB/s",
        "CPU s a GB, client + server",
        "100 MB, set: GB/s",
        "4 KiB, get: half within, us",
        "99 % within, us",
    ]
    rows = []
    for name in names:
        get, put = (record.cell(network, name, op, content.LARGE) for op in ("get", "set"))
        small = record.cell(network, name, "get", content.SMALL)
        rows.append(
            [
                name,
                _figures(get, lambda one: one.rate),
                _cpu(get),
                _figures(put, lambda one: one.rate),
                _figures(small, lambda one: one.p50, 1e6),
                _figures(small, lambda one: one.p99, 1e6),
            ]
        )
    return f"## One client, {network}\n\n" + "\n".join(markdown_rows(header, rows))


def _many_clients(record: Record, network: str) -> str:
    counts = _counts(record)
    header = ["way", *(f"{count} active: GB/s" for count in counts)]
    header += [f"{count} active: 99 % within, ms" for count in counts]
    header += [f"{count} active: CPU s a GB" for count in counts]
    rows = []
    for way in plan.MANY_CLIENTS:
        cells = [record.cell(network, way.name, "get", content.MIDDLE, count) for count in counts]
        if any(cells):
            rows.append(
                [
                    way.name,
                    *(_figures(cell, lambda one: one.rate) for cell in cells),
                    *(_figures(cell, lambda one: one.p99, 1e3) for cell in cells),
                    *(_cpu(cell) for cell in cells),
                ]
            )
    if not rows:
        return ""
    text = (
        "Values of 64 KiB, in random order. All clients of raw TCP are one process with one "
        "thread, and so are UCX's; all others are processes."
    )
    return f"## Many clients, {network}\n\n{text}\n\n" + "\n".join(markdown_rows(header, rows))


def _crowds(record: Record) -> str:
    if not record.crowds:
        return ""
    header = [
        "way",
        "connect at once",
        "the last is served after, s",
        "have failed",
        "idle clients",
        "server's memory for each, KiB",
        "server's descriptors for each",
        "4 KiB, get, half within: without them, us",
        "beside them, us",
    ]
    rows = [_crowd(crowd) for crowd in record.crowds]
    text = (
        "Processes that connect at the same moment with the time-outs that stores have, on "
        "loopback, and then do nothing, beside one client that works. The clients of raw TCP are "
        "one process, and connect one after the other."
    )
    return f"## Many that connect, and are idle\n\n{text}\n\n" + "\n".join(
        markdown_rows(header, rows)
    )


def _crowd(crowd: Crowd) -> list[str]:
    return [
        crowd.way,
        str(crowd.at_once),
        _pair(crowd.seconds),
        str(sum(crowd.failed)),
        str(crowd.clients),
        report.number(crowd.nbytes / 1024),
        report.number(crowd.descriptors),
        _pair([1e6 * (one.p50 or 0) for one in crowd.alone]),
        _pair([1e6 * (one.p50 or 0) for one in crowd.beside]),
    ]


def _settings(record: Record) -> str:
    if not record.settings:
        return ""
    loads = list(dict.fromkeys((cell.op, cell.nbytes, cell.clients) for cell in record.settings))
    header = ["UCX", *(_load_name(*load) for load in loads)]
    rows = []
    for name in dict.fromkeys(cell.way for cell in record.settings):
        cells = {
            (cell.op, cell.nbytes, cell.clients): cell
            for cell in record.settings
            if cell.way == name
        }
        rows.append([name, *(_setting(cells.get(load)) for load in loads)])
    text = (
        "A small program over UCX's C API, on loopback. Each row differs from the first in one "
        "thing; `benchmarks/network/ucx_messages.cpp` explains them."
    )
    return f"## UCX's settings\n\n{text}\n\n" + "\n".join(markdown_rows(header, rows))


def _load_name(op: str, nbytes: int, clients: int) -> str:
    if nbytes == content.SMALL:
        return f"4 KiB, {op}: half within, us"
    size = "100 MB" if nbytes == content.LARGE else "64 KiB"
    many = f", {clients} clients" if clients > 1 else ""
    return f"{size}, {op}{many}: GB/s"


def _setting(cell: Cell | None) -> str:
    if cell is not None and cell.nbytes == content.SMALL:
        return _figures(cell, lambda one: one.p50, 1e6)
    return _figures(cell, lambda one: one.rate)


def _missing(record: Record) -> str:
    crowds = [
        f"{crowd.way}, connecting: {error}" for crowd in record.crowds for error in crowd.errors
    ]
    found = [*record.skipped, *record.refused, *record.errors, *crowds]
    if not found:
        return ""
    listed = "\n".join(f"- {_as_text(one)}" for one in found)
    return f"## Not measured\n\n{listed}"


def _as_text(line: str) -> str:
    """Return a line with what Markdown would take for marks as code."""
    name, _, reason = line.partition(": ")
    return f"{name}: `{reason.replace('`', '')}`"


# ---- figures ----


def _figures(cell: Cell | None, figure: Figure, factor: float = 1) -> str:
    if cell is None:
        return ""
    values = [value * factor for one in cell.windows if (value := figure(one)) is not None]
    return _pair(values)


def _cpu(cell: Cell | None) -> str:
    """Return the medians of the processor times of both sides."""
    if cell is None:
        return ""
    sides = [cell.median(lambda one: one.client_cpu), cell.median(lambda one: one.server_cpu)]
    return " + ".join(report.number(one) for one in sides if one is not None)


def _pair(values: Iterable[float]) -> str:
    found = list(values)
    if not found:
        return ""
    return f"{report.number(median(found))} / {report.number(min(found))}"
