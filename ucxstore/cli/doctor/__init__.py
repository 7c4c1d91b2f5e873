"""``ucxstore doctor``: find problems of UCX, this machine and the way to a server."""

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ucxstore.cli.common.command import (
    add_client_options,
    client_options,
    open_store,
    parse_address,
)
from ucxstore.cli.common.parser import Parser, make_parser
from ucxstore.cli.common.status import Status, UsageError
from ucxstore.cli.doctor.pair import DEFAULT_PORT, DEFAULT_WAIT, PORTS

if TYPE_CHECKING:
    from ucxstore.base.address import Address
    from ucxstore.cli.doctor.advice import Finding
    from ucxstore.cli.doctor.steps import Visit


def build_parser() -> Parser:
    """Make the command's parser."""
    parser = make_parser(
        "doctor",
        "Examine UCX and this machine, go the way to a server step by step, measure it, and say "
        "what to change. Nothing is written into what is served: values go through a scratch "
        "space, if the server offers one. Without ADDRESS a server is started. Exits with 1 if "
        "there is a problem. With --pair here and --listen on another host, measure each network "
        "way between the two in less than ten minutes, and print what to report.",
    )
    parser.add_argument(
        "address", metavar="ADDRESS", nargs="?", help="ucx://host:port[,host:port...][/prefix]"
    )
    parser.add_argument(
        "--write",
        action="store_true",
        help="write a value to what is served, under a new key, and delete it again",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--pair",
        metavar="HOST[:PORT]",
        help="measure the ways to this host, on which 'ucxstore doctor --listen' runs (default: "
        f"none; PORT {DEFAULT_PORT})",
    )
    parser.add_argument(
        "--listen",
        nargs="?",
        const=f"0.0.0.0:{DEFAULT_PORT}",
        metavar="HOST:PORT",
        help="wait for 'ucxstore doctor --pair' of another host, and help it to measure; a "
        f"firewall must let it in at {PORTS} ports, from this one on (default: do not; "
        f"without HOST:PORT, 0.0.0.0:{DEFAULT_PORT})",
    )
    parser.add_argument(
        "--wait",
        type=float,
        default=DEFAULT_WAIT,
        metavar="SECONDS",
        help="with --pair and --listen: how long to wait for the other host (default: %(default)g)",
    )
    add_client_options(parser)
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    if arguments.pair is not None or arguments.listen is not None:
        return _run_pair(arguments)
    options = client_options(arguments)
    if arguments.address is not None:
        parse_address(arguments.address)

    from ucxstore.base.address import Address
    from ucxstore.cli.doctor import report
    from ucxstore.cli.doctor.advice import Finding, advise_on_machine
    from ucxstore.cli.doctor.machine import examine_machine, find_ucx
    from ucxstore.cli.doctor.steps import Visit
    from ucxstore.pipeline.selection import advise_on_pipeline

    def say(line: str) -> None:
        if not arguments.json:  # which has all at the end
            print(line, flush=True)

    library, missing = find_ucx()
    machine = examine_machine(library)
    findings = advise_on_machine(library, machine, missing)
    for line in report.machine_lines(library, machine):
        say(line)
    visits: list[Visit] = []
    with _address(arguments) as address:
        for server in address.servers:
            place = str(Address((server,), address.prefix))
            with open_store(arguments, place, read_only=False) as store:
                visit = Visit(server=server, store=store, options=options, write=arguments.write)
                findings += _go(visit, say)
            visits.append(visit)
    if other := advise_on_pipeline():
        findings.append(Finding("note", other))
    if arguments.json:
        print(report.as_json(library, machine, visits, findings))
    say("")
    for line in report.finding_lines(findings):
        say(line)
    problems = any(finding.level == "problem" for finding in findings)
    return Status.FAILED if problems else Status.DONE


def _run_pair(arguments: argparse.Namespace) -> int:
    """Run one of the two sides of a pair."""
    flags = {"--pair": arguments.pair is not None, "--listen": arguments.listen is not None}
    given = [flag for flag, is_given in flags.items() if is_given]
    others = {"ADDRESS": arguments.address is not None, "--write": arguments.write}
    others["--ucx"] = bool(arguments.ucx)
    for name in [*given[1:], *(name for name, is_given in others.items() if is_given)]:
        hint = "; set UCX_... in the environment of each host" if name == "--ucx" else ""
        raise UsageError(f"{given[0]} does not go with {name}{hint}")
    options = client_options(arguments)
    from ucxstore.cli.doctor.pair import commands

    command = commands.pair if arguments.pair is not None else commands.listen
    return command(arguments, options)


def _go(visit: "Visit", say: Callable[[str], None]) -> "list[Finding]":
    """Take all steps to a server, and return what to know of it."""
    from ucxstore.base.options import check_local
    from ucxstore.cli.doctor import report
    from ucxstore.cli.doctor.advice import Finding, advise_on_way
    from ucxstore.cli.doctor.steps import take

    say("")
    say(report.line("server", visit.store.address))
    for outcome in take(visit):
        say(report.step_line(outcome))
    findings = [
        Finding("problem", f"{outcome.step}: {outcome.what}", outcome.change)
        for outcome in visit.outcomes
        if outcome.state == "failed"
    ]
    if visit.ports is not None and visit.way is not None:
        findings += advise_on_way(visit.ports, visit.way, check_local(None))
    return findings


@contextmanager
def _address(arguments: argparse.Namespace) -> "Iterator[Address]":
    """Yield the user's address, or that of a server that runs meanwhile."""
    if arguments.address is not None:
        yield parse_address(arguments.address)
        return
    from ucxstore.server import Server

    with Server.spawn("memory://") as server:
        yield parse_address(server.address)
