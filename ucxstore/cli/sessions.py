"""``ucxstore sessions``: list the clients of a server, and what it holds and has done for each."""

import argparse
import json
from typing import TYPE_CHECKING

from ucxstore.base.showing import count_text, printable, size_text, time_text
from ucxstore.cli.common.command import add_client_options
from ucxstore.cli.common.operate import connect_to_one, make_operator_parser, operate
from ucxstore.cli.common.parser import Parser

if TYPE_CHECKING:
    from ucxstore.base.stats import ClientStats


def build_parser() -> Parser:
    """Make the command's parser."""
    parser = make_operator_parser(
        "sessions",
        "List the clients that are connected to a server, by the numbers that 'ucxstore kick' "
        "takes: who they are, since when, what the server holds for each and has done for it.",
    )
    parser.add_argument("--json", action="store_true", help="print JSON, a line for each session")
    add_client_options(parser)
    return parser


async def run(arguments: argparse.Namespace) -> None:
    """Run the command."""
    from ucxstore.base.stats import parse_sessions

    with connect_to_one(arguments) as values:
        last, more = 0, True
        while more:
            page, more = parse_sessions(await operate(values, do="sessions", after=last))
            for one in page:
                print(json.dumps(one) if arguments.json else describe(one))
            last = page[-1]["id"] if page else last
            more = more and bool(page)


def describe(session: "ClientStats") -> str:
    """Describe a session in a few lines."""
    lanes = printable(" ".join(session["lanes"]))
    kind = "encrypted" if session["encrypted"] else "in the clear"
    carriers = {"local": "local", "tcp": f"TCP, {kind}"}
    way = carriers.get(lanes, f"UCX ({lanes or 'connecting'}), {kind}")
    lines = [
        f"{session['id']:>4}  {printable(session['peer'])}, {printable(session['origin'])}, {way}",
        f"connected for {time_text(session['age_s'])}, "
        f"silent for {time_text(session['silent_s'])}, worked {time_text(session['worked_s'])}",
        f"{session['gets']:,} gets, {session['gets_seen']:,} read where they lie, "
        f"{count_text(session['sets'], 'set')}, {size_text(session['bytes_sent'])} sent, "
        f"{size_text(session['bytes_received'])} received",
    ]
    held = [
        f"{printable(kind)} {size_text(amount) if kind.endswith('_bytes') else f'{amount:,}'}"
        for kind, amount in session["held"].items()
    ]
    if held:
        lines.append(f"holds {', '.join(held)}")
    return "\n      ".join(lines)
