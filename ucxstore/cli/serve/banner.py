"""What ``ucxstore serve`` says at its start, after the addresses."""

import os
import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from ucxstore import __version__
from ucxstore.base import ucx_library
from ucxstore.base.rdma import has_rdma
from ucxstore.base.showing import count_text, printable, size_text
from ucxstore.server.accepting.listen import is_loopback, resolve
from ucxstore.server.locations import LocationKind, hide_password, parse_location
from ucxstore.server.options.command_options import CommandOptions
from ucxstore.server.options.server_options import DEFAULT_CACHE, ServerOptions
from ucxstore.server.options.ucx_offer import offer_of

if TYPE_CHECKING:
    from ucxstore.server import Server


def text(options: ServerOptions, command: CommandOptions, server: "Server") -> str:
    """Return the lines, each with a name in front."""
    rows = [
        ("version", f"ucxstore {__version__}, {ucx_library.describe()}"),
        ("process", f"{os.getpid()}, {count_text(options.threads, 'thread')}"),
        ("storage", _storage(command.location, options, server)),
        ("clients", _clients(options, command)),
        ("ports", _ports(options, server)),
        ("in Python", f"store = UcxStore({_arguments(options, command, server)})"),
        ("in a shell", f"ucxstore ls {server.address}{_secret_flag(options, command)}"),
    ]
    return "\n".join(f"  {name:<11}{printable(words)}" for name, words in rows)


def _storage(location: str, options: ServerOptions, server: "Server") -> str:
    kind, path = parse_location("location", location)
    match kind:
        case LocationKind.MEMORY:
            counted = server.stats()
            used, limit = (size_text(counted[name]) for name in ("memory_used", "memory_limit"))
            words = f"memory, {used} used of {limit}"
            if options.when_full is not None:
                words += f"; when full: {options.when_full}"
        case LocationKind.DIRECTORY:
            space = shutil.disk_usage(path)
            free, total = size_text(space.free), size_text(space.total)
            words = f"directory {Path(path).absolute()}, {free} free of {total}"
        case LocationKind.OBJECTS | LocationKind.SERVERS:
            cache = DEFAULT_CACHE if options.cache is None else options.cache
            words = f"{hide_password(location)}, cached in {size_text(cache)} of memory"
            if options.cache_dir is not None:
                words += f" and {size_text(options.cache_dir_size or 0)} of {options.cache_dir}"
    return f"{words}, read-only" if options.read_only else words


def _clients(options: ServerOptions, command: CommandOptions) -> str:
    if options.secret is not None:
        return f"whoever knows the secret or has a grant of it ({_origin(command)})"
    if options.insecure:
        return "whoever can connect: --insecure, and no secret"
    return "processes of this user on this host; no secret"


def _ports(options: ServerOptions, server: "Server") -> str:
    who = "for this host alone" if is_loopback(resolve(options.bind)[1]) else "for other hosts"
    words = f"{server.address.removeprefix('ucx://')} ({who})"
    offer = offer_of(options, os.environ, rdma=has_rdma())
    if offer is not None and offer.over_tcp:
        data = "any free port"
        if options.data_ports is not None:
            data = "{}-{}".format(*options.data_ports)
        words += f", {data} (UCX over TCP)"
    elif offer is not None:
        words += ", none of UCX's, which uses no TCP"
    if options.socket is not None:
        words += f", {options.socket} (this host)"
    return words


def _origin(command: CommandOptions) -> str:
    if command.secret_file is not None:
        return f"file {command.secret_file}"
    return "of the environment"


def _arguments(options: ServerOptions, command: CommandOptions, server: "Server") -> str:
    address = f'"{server.address}"'
    if options.secret is None:
        return address
    if command.secret_file is None:
        return f"{address}, secret=Secret.find()"
    return f"{address}, secret=Secret.from_file({str(Path(command.secret_file).absolute())!r})"


def _secret_flag(options: ServerOptions, command: CommandOptions) -> str:
    if options.secret is None or command.secret_file is None:
        return ""
    return f" --secret-file {shlex.quote(str(Path(command.secret_file).absolute()))}"
