"""``ucxstore ping``: measure round trips to a server."""

import argparse
import json
import time
from statistics import median

from ucxstore.cli.common.command import add_client_options, connect
from ucxstore.cli.common.parser import Parser, make_parser
from ucxstore.cli.common.status import UsageError

_DEFAULT_COUNT = 5
_DEFAULT_INTERVAL = 0.2  # seconds
_MOST_SECONDS = 3600.0


def build_parser() -> Parser:
    """Make the command's parser."""
    parser = make_parser(
        "ping",
        "Send empty requests to a server, or to each of several, and measure the round trips. "
        "Exits with 0 if all were answered, and with 5 if the server does not answer.",
    )
    parser.add_argument("address", metavar="ADDRESS", help="ucx://host:port[,host:port...]")
    parser.add_argument(
        "-c", "--count", type=int, default=_DEFAULT_COUNT, metavar="N", help="round trips"
    )
    parser.add_argument(
        "-i",
        "--interval",
        type=float,
        default=_DEFAULT_INTERVAL,
        metavar="SECONDS",
        help="the time between two of them",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object, in seconds")
    add_client_options(parser)
    return parser


async def run(arguments: argparse.Namespace) -> None:
    """Run the command."""
    import asyncio

    if arguments.count < 1:
        raise UsageError(f"--count: {arguments.count} is less than 1")
    if not 0 <= arguments.interval <= _MOST_SECONDS:
        raise UsageError(f"--interval: {arguments.interval:g} is not between 0 and 3600 seconds")
    start = time.perf_counter()
    with connect(arguments, arguments.address) as values:
        connecting = time.perf_counter() - start
        lanes = values.lanes
        if not arguments.json:
            print(f"{values}: connected in {_text(connecting)}, over {' '.join(lanes)}")
        times: list[float] = []
        for number in range(arguments.count):
            if number:
                await asyncio.sleep(arguments.interval)
            start = time.perf_counter()
            await values.ping()
            times.append(time.perf_counter() - start)
            if not arguments.json:
                print(f"round trip {number + 1}: {_text(times[-1])}", flush=True)
    least, middle, most = min(times), median(times), max(times)
    if arguments.json:
        found = {"min": least, "median": middle, "max": most, "round_trips": times}
        print(json.dumps({"address": str(values), "lanes": lanes, "connect": connecting, **found}))
    else:
        print(
            f"{len(times)} round trips: min {_text(least)}, median {_text(middle)}, "
            f"max {_text(most)}"
        )


def _text(seconds: float) -> str:
    return f"{seconds * 1e6:.0f} us" if seconds < 1e-3 else f"{seconds * 1e3:.1f} ms"
