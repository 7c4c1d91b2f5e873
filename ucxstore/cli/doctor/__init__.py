"""``ucxstore doctor``: find problems of UCX, this machine and the connection to a server."""

import argparse
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING

from ucxstore.cli.command import add_client_options, open_store, run
from ucxstore.cli.parser import Parser, make_parser
from ucxstore.cli.text import printable, size_text

if TYPE_CHECKING:
    from ucxstore._ucx import UcxLibrary
    from ucxstore.cli.doctor.advice import Finding
    from ucxstore.cli.doctor.machine import Machine
    from ucxstore.cli.doctor.measure import Way
    from ucxstore.cli.doctor.ports import Ports


def main(argv: Sequence[str]) -> int:
    """Run ``ucxstore doctor``; return the exit status."""
    arguments = build_parser().parse_args(argv)
    return run("doctor", lambda: _examine(arguments))


def build_parser() -> Parser:
    """Make the command's parser."""
    parser = make_parser(
        "doctor",
        "Examine UCX, this machine and the connection to a server, measure the connection, and say "
        "what to change. Nothing is written into what is served: a value goes through a scratch "
        "space, if the server offers one. Without ADDRESS a server is started. Exits with 1 if "
        "there is a problem.",
    )
    parser.add_argument("address", metavar="ADDRESS", nargs="?", help="ucx://host:port[/prefix]")
    parser.add_argument(
        "--write",
        action="store_true",
        help="write a value to what is served, under a new key, and delete it again",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_client_options(parser)
    return parser


def _examine(arguments: argparse.Namespace) -> int:
    from ucxstore._ucx import load
    from ucxstore.address import Address
    from ucxstore.cli.doctor.advice import Finding, advise, advise_on_ports
    from ucxstore.cli.doctor.machine import examine_machine
    from ucxstore.cli.doctor.measure import is_this_host, measure
    from ucxstore.cli.doctor.ports import examine_ports
    from ucxstore.options import DEFAULT_CONNECT_TIMEOUT, check_local
    from ucxstore.pipeline.selection import advise_on_pipeline

    library = load()
    machine = examine_machine(library)
    with _server(arguments) as address, open_store(arguments, address, read_only=False) as store:
        (server, *_) = Address.parse(store.address).servers
        same_host = is_this_host(server, DEFAULT_CONNECT_TIMEOUT)
        way = measure(store, same_host=same_host, write=arguments.write)
        ports = examine_ports(server)
    findings = advise(library, machine, way, check_local(None))
    findings += advise_on_ports(ports, way)
    if other := advise_on_pipeline():
        findings.append(Finding("note", other))
    if arguments.json:
        print(_as_json(address, library, machine, ports, way, findings))
    else:
        print(report(address, library, machine, ports, way, findings))
    return 1 if any(finding.level == "problem" for finding in findings) else 0


@contextmanager
def _server(arguments: argparse.Namespace) -> Iterator[str]:
    """Yield the user's address, or that of a server that runs meanwhile."""
    if arguments.address is not None:
        yield arguments.address
        return
    from ucxstore.server import Server

    with Server.spawn("memory://") as server:
        yield server.address


def report(
    address: str,
    library: "UcxLibrary",
    machine: "Machine",
    ports: "Ports",
    way: "Way",
    findings: "Sequence[Finding]",
) -> str:
    """Return the findings as readable text."""
    lines = [
        f"UCX          {library.version} ({library.origin}: {library.path})",
        f"transports   {_transports_text(machine)}",
        f"limits       locked memory {_limit_text(machine.locked_memory)}, open files "
        f"{machine.open_files if machine.open_files >= 0 else 'unlimited'}",
    ]
    if machine.container:
        lines.append("container    yes")
    lines += [
        f"environment  {printable(name)}={printable(value)}"
        for name, value in machine.environment.items()
    ]
    where = "on this machine" if way.same_host else "on another machine, or in a container"
    lines += [
        f"server       {address}, {where}",
        f"ports        {_ports_text(ports)}",
        f"lanes        {', '.join(way.lanes)}",
        f"round trip   {way.round_trip * 1e6:.0f} us",
    ]
    if way.write is None or way.read is None or way.copy is None:
        lines.append(f"bandwidth    not measured: {way.why_not}")
    else:
        lines.append(
            f"bandwidth    {size_text(way.write)}/s to the server, {size_text(way.read)}/s from "
            f"it, in values of {size_text(way.nbytes)}; np.copyto makes {size_text(way.copy)}/s"
        )
    lines.append("")
    for finding in findings:
        lines.append(f"{finding.level}: {finding.what}")
        if finding.change:
            lines.append(f"    {finding.change}")
    return "\n".join(lines)


def _as_json(
    address: str,
    library: "UcxLibrary",
    machine: "Machine",
    ports: "Ports",
    way: "Way",
    findings: "Sequence[Finding]",
) -> str:
    found = {
        "address": address,
        "ucx": {"origin": library.origin, "version": library.version, "path": str(library.path)},
        "machine": asdict(machine),
        "ports": asdict(ports),
        "way": asdict(way),
        "findings": [asdict(finding) for finding in findings],
    }
    return json.dumps(found)


def _ports_text(ports: "Ports") -> str:
    data = f"{', '.join(ports.data)} (UCX)" if ports.data else "none of UCX's"
    words = f"at the server {ports.control} (control), {data}"
    if ports.listening:
        words += f"; here {', '.join(ports.listening)}, which lets nobody in"
    return words


def _transports_text(machine: "Machine") -> str:
    from ucxstore.cli.doctor.advice import SHARED

    if machine.transports is None:
        return "unknown"
    return "; ".join(
        f"{name}: {' '.join(devices)}"
        for name, devices in machine.transports.items()
        if name not in SHARED and name != "self"
    )


def _limit_text(limit: int) -> str:
    return size_text(limit) if limit >= 0 else "unlimited"
