"""``ucxstore stats``: print the counters of a server, once or repeatedly."""

import argparse
import json
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ucxstore.base.showing import printable, size_text, text_columns, time_text
from ucxstore.cli.common.command import add_client_options
from ucxstore.cli.common.operate import connect_to_one
from ucxstore.cli.common.parser import Parser, make_parser
from ucxstore.cli.common.status import UsageError

if TYPE_CHECKING:
    from ucxstore.base.stats import ClientStats, OriginStats, ServerStats, SpaceStats

_COLUMNS = (
    "client",
    "lanes",
    "gets",
    "sets",
    "sent",
    "received",
    "seen",
    "bytes seen",
    "in flight",
    "waiting",
    "worked",
    "held",
)

_ORIGIN_COLUMNS = ("clients of", "connected", "worked", "held")

_SPACE_COLUMNS = ("scratch space", "bytes", "quota", "age")


def build_parser() -> Parser:
    """Make the command's parser."""
    parser = make_parser(
        "stats", "Print a server's counters since it was started, and those of its clients."
    )
    parser.add_argument("address", metavar="ADDRESS", help="ucx://host:port")
    parser.add_argument(
        "--watch",
        type=float,
        metavar="SECONDS",
        help="repeat after this time, with the rates in between (default: once)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON, a line each time")
    add_client_options(parser)
    return parser


async def run(arguments: argparse.Namespace) -> None:
    """Run the command."""
    import asyncio

    from ucxstore.base.options import MAX_TIMEOUT

    pause: float | None = arguments.watch
    if pause is not None and not 0 < pause <= MAX_TIMEOUT:
        raise UsageError(f"--watch: {pause:g} is not between 0 and {MAX_TIMEOUT:.0f} seconds")
    with connect_to_one(arguments, prefix=True) as values:
        before: ServerStats | None = None
        due = time.monotonic()
        while True:
            now = await values.server_stats()
            shown = json.dumps(now) if arguments.json else report(str(values), now, before)
            print(shown, flush=True)
            if pause is None:
                return
            if not arguments.json:
                print()
            before = now
            due = max(due + pause, time.monotonic())
            await asyncio.sleep(due - time.monotonic())


def report(server: str, now: "ServerStats", before: "ServerStats | None" = None) -> str:
    """Return readable counters; with those from `before`, also the rates since then.

    Whoever has asked for them is no client here.
    """
    clients = [one for one in now["clients"] if one["id"] != now["asked_by"]]
    own = 1 if now["asked_by"] else 0
    lines = [
        f"{server}, up {time_text(now['uptime_s'])}, {now['connected'] - own} clients "
        f"({now['sessions'] - own} so far, {now['sessions_lost']} lost, "
        f"{now['messages_refused']} messages refused)",
        f"gets  {now['gets']:,} ({now['gets_missing']:,} missing), {size_text(now['bytes_sent'])} "
        f"sent, {size_text(now['bytes_in_flight'])} in flight",
        f"sets  {now['sets']:,}, {size_text(now['bytes_received'])} received",
    ]
    if now["gets_seen"]:
        lines.append(
            f"seen  {now['gets_seen']:,} values of {size_text(now['bytes_seen'])}, read by clients "
            "of its host without a request"
        )
    if now["failed"] or now["abandoned"]:
        lines.append(
            f"fail  {now['failed']:,} requests failed, {now['abandoned']:,} were given up by "
            "clients"
        )
    if now["memory_limit"]:
        part = now["memory_used"] / now["memory_limit"]
        lines.append(
            f"mem   {size_text(now['memory_used'])} of {size_text(now['memory_limit'])} used "
            f"({part:.0%}), {now['value_count']:,} values of {size_text(now['value_bytes'])}"
        )
    if now["spilled"]:
        lines.append(
            f"disk  {now['spilled']:,} of them in files, {size_text(now['spilled_bytes'])}"
        )
    if now["evicted"]:
        lines.append(
            f"evict {now['evicted']:,} values of {size_text(now['evicted_bytes'])} were given up"
            + (f", {now['evicted_keys']:,} keys are remembered" if now["evicted_keys"] else "")
        )
    if now["cache_hits"] or now["cache_misses"]:
        part = now["cache_hits"] / (now["cache_hits"] + now["cache_misses"])
        lines.append(
            f"cache {now['cache_hits']:,} hits ({part:.0%}), {now['cache_misses']:,} misses, "
            f"{size_text(now['cached_bytes'])} held"
        )
    if now["decoded_limit"]:
        lines.append(
            f"dec   {now['decoded']:,} chunks decoded, {now['decoded_hits']:,} hits, "
            f"{now['decodes_failed']:,} left to clients, {size_text(now['decoded_bytes'])} of "
            f"{size_text(now['decoded_limit'])} held"
        )
    if before is not None:
        lines.append(_rates(now, before))
    lines += text_columns([_COLUMNS, *map(_row, clients)])
    if len(now["origins"]) > 1:
        lines += text_columns([_ORIGIN_COLUMNS, *map(_origin_row, now["origins"])])
    if now["scratch_spaces"]:
        lines += text_columns([_SPACE_COLUMNS, *map(_space_row, now["spaces"])])
    return "\n".join(lines)


def _rates(now: "ServerStats", before: "ServerStats") -> str:
    seconds = max(now["uptime_s"] - before["uptime_s"], 1e-9)
    names = ("gets", "bytes_sent", "gets_seen", "bytes_seen", "sets", "bytes_received")
    gets, sent, seen, bytes_seen, sets, received = (
        (now[name] - before[name]) / seconds for name in names
    )
    return (
        f"now   {gets:,.0f} gets/s, {size_text(sent)}/s sent, {seen:,.0f} seen/s, "
        f"{size_text(bytes_seen)}/s seen, {sets:,.0f} sets/s, {size_text(received)}/s received"
    )


def _row(client: "ClientStats") -> Sequence[str]:
    return (
        printable(client["peer"]),
        printable(" ".join(client["lanes"])),
        f"{client['gets']:,}",
        f"{client['sets']:,}",
        size_text(client["bytes_sent"]),
        size_text(client["bytes_received"]),
        f"{client['gets_seen']:,}",
        size_text(client["bytes_seen"]),
        size_text(client["bytes_in_flight"]),
        f"{client['gets_waiting']:,}",
        time_text(client["worked_s"]),
        _held_text(client["held"]),
    )


def _origin_row(origin: "OriginStats") -> Sequence[str]:
    return (
        printable(origin["origin"]),
        f"{origin['sessions']:,}",
        time_text(origin["worked_s"]),
        _held_text(origin["held"]),
    )


def _held_text(held: dict[str, int]) -> str:
    """All bytes together, and each other kind."""
    size = sum(amount for kind, amount in held.items() if kind.endswith("_bytes"))
    others = [
        f"{amount:,} {printable(kind)}"
        for kind, amount in held.items()
        if not kind.endswith("_bytes")
    ]
    return ", ".join([size_text(size), *others])


def _space_row(space: "SpaceStats") -> Sequence[str]:
    sizes = size_text(space["bytes"]), size_text(space["quota"])
    return printable(space["name"]), *sizes, time_text(space["age_s"])
