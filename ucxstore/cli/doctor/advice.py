"""Advice of ``ucxstore doctor``, computed from what it has found. No I/O."""

import errno
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from ucxstore.base.address import HostPort
from ucxstore.base.errors import (
    AuthenticationError,
    ConnectError,
    IntegrityError,
    NotAServerError,
    ProtocolVersionError,
    UcxUnavailableError,
)
from ucxstore.base.options import Local
from ucxstore.base.showing import size_text
from ucxstore.base.ucx_library import UcxLibrary
from ucxstore.cli.doctor.machine import Machine
from ucxstore.cli.doctor.measure import Way
from ucxstore.cli.doctor.ports import Ports

SHARED = frozenset({"posix", "sysv", "cma", "knem", "xpmem"})  # of UCX: seldom used, or never
_LOCAL = "local"  # the plane of one host, as `store.stats()` names it
_RDMA = ("rc", "dc", "ud", "srd")

_FEW_FILES = 1024

_GET_UCX = "pip install libucx-cu12 brings a UCX; plain TCP does without one, and RDMA does not"


@dataclass(frozen=True)
class Finding:
    """A finding, with advice what to change.

    Attributes
    ----------
    level : {"ok", "note", "problem"}
        With a problem, the exit status is 1.
    what : str
        The finding.
    change : str
        The advice; empty if there is nothing to change.
    """

    level: Literal["ok", "note", "problem"]
    what: str
    change: str = ""


def advise_on_machine(
    library: UcxLibrary | None, machine: Machine, missing: str = ""
) -> list[Finding]:
    """Return the findings about UCX and the limits of the machine.

    Parameters
    ----------
    library : UcxLibrary or None
    machine : Machine
    missing : str
        Why there is no library.
    """
    if library is None:
        return [Finding("note", missing, _GET_UCX), *_of_limits(machine)]
    return [*_of_ucx(library, machine), *_of_limits(machine)]


def advise_on_way(ports: Ports, way: Way, local: Local) -> list[Finding]:
    """Return the findings about a connection, and what a firewall must let through.

    Parameters
    ----------
    ports : Ports
    way : Way
    local : {"auto", "ucx", "off"}
        How the user wants to reach servers of this machine.
    """
    return [_of_the_way(way, local), *_of_the_ports(ports, way)]


def advise_on_failure(step: str, error: Exception, server: HostPort) -> str:
    """Return what to do where a step to a server has failed.

    Parameters
    ----------
    step : str
        Its name, as `ucxstore.cli.doctor.steps.STEPS` has it.
    error : Exception
    server : HostPort
    """
    match step:
        case "name":
            return (
                "correct the name, or see that DNS or /etc/hosts know it; an IP address needs none"
            )
        case "route":
            return (
                f"'ip route get {server.host}' shows what the kernel knows: is a network or a VPN "
                "down, or is this a container with a network of its own?"
            )
        case "port":
            return _of_the_port(error, server)
        case "handshake":
            return _of_the_handshake(error)
        case "lane" if isinstance(error, ConnectError) and error.over_ucx:
            return (
                "plain TCP needs no other port: UCXSTORE_NETWORK=tcp; for UCX's TCP, serve with a "
                "range of ports, two for each client ('ucxstore serve --data-ports 7500-7599'), "
                "and let TCP in at these, too"
            )
    if isinstance(error, UcxUnavailableError):
        return _GET_UCX
    if isinstance(error, IntegrityError):
        return "the network, its cards or the memory change bytes: look at the cards' offloads"
    return "the server's log may say more"


def _of_the_port(error: Exception, server: HostPort) -> str:
    cause = error.__cause__
    if isinstance(cause, TimeoutError):
        return (
            f"a firewall drops what comes to TCP port {server.port}: let it in there; or the host "
            "is down"
        )
    match cause.errno if isinstance(cause, OSError) else None:
        case errno.ECONNREFUSED:
            return (
                "nobody listens there: is the server running, and does its first line have this "
                "port? Without --bind only its own machine reaches it; --bind 0.0.0.0:"
                f"{server.port} listens at all its addresses"
            )
        case errno.EACCES | errno.EPERM | errno.EINVAL:
            return f"this machine's own rules forbid connections to TCP port {server.port}"
    return f"a firewall rejects what comes to TCP port {server.port}, or the host is down"


def _of_the_handshake(error: Exception) -> str:
    if isinstance(error, AuthenticationError):
        if "expired" in str(error):
            return (
                "ask for another grant; if the server's clock is not that of this machine, which "
                "stands above, set it: it alone counts"
            )
        return (
            "give both sides the same secret (sha256sum compares the files): --secret-file, or "
            "UCXSTORE_SECRET_FILE in the environment"
        )
    if isinstance(error, ProtocolVersionError):
        return "install the same release on both sides; 'ucxstore --version' says which this is"
    if isinstance(error, NotAServerError):
        return "another program listens there: compare the port with the server's first line"
    return "the server is stopped, or has too much to do: its log may say more"


def _of_the_ports(ports: Ports, way: Way) -> Iterator[Finding]:
    if not way.same_host and ports.data:
        yield Finding(
            "note",
            f"a firewall at the server must let this host in at {ports.control} and at UCX's "
            "ports; none at this host needs to let anybody in",
            "ucxstore serve --data-ports 7500-7599 chooses these: two for each client",
        )


def _of_ucx(library: UcxLibrary, machine: Machine) -> Iterator[Finding]:
    if library.version == "1.22.0":
        yield Finding(
            "problem",
            "UCX 1.22.0 is reported to crash in calls on an endpoint that has failed",
            "install another version",
        )
    if machine.transports is None:
        yield Finding("note", "ucx_info, which lists devices, is not installed")
    elif library.origin == "wheel" and not any(map(_is_rdma, machine.transports)):
        yield Finding(
            "note",
            "this UCX comes from a wheel, which has no InfiniBand or RoCE",
            "if there is an adapter, install UCX from elsewhere and set UCXSTORE_UCX=system",
        )


def _of_limits(machine: Machine) -> Iterator[Finding]:
    rdma = any(map(_is_rdma, machine.transports or ()))
    if rdma and machine.locked_memory >= 0:
        yield Finding(
            "problem",
            f"at most {size_text(machine.locked_memory)} of memory may be locked, and RDMA locks "
            "what it moves",
            "ulimit -l unlimited",
        )
    if 0 <= machine.open_files < _FEW_FILES:
        yield Finding(
            "note",
            f"{machine.open_files} files may be open, and each connection takes a dozen",
            f"ulimit -n {_FEW_FILES * 4}",
        )


def _of_the_way(way: Way, local: Local) -> Finding:
    """Explain the way to the server."""
    lanes = ", ".join(way.lanes)
    if _LOCAL in way.lanes:
        return Finding("ok", "the server's memory is seen where it lies, without UCX")
    if any(lane.partition("/")[0] in SHARED for lane in way.lanes):
        return Finding("ok", f"UCX's shared memory is used: {lanes}")
    if any(_is_rdma(lane.partition("/")[0]) for lane in way.lanes):
        return Finding("ok", f"the server is reached by RDMA: {lanes}")
    if not way.same_host:
        return Finding(
            "ok",
            f"the server's address is not one of this machine, so there is no shared memory: "
            f"{lanes}",
            "if it is a container here, share a folder, and serve with --socket in it",
        )
    if local != "auto":
        return Finding(
            "note",
            f"the server is on this machine, and UCXSTORE_LOCAL={local} asks for "
            f"{'UCX' if local == 'ucx' else 'the network'}: {lanes}",
            "unset UCXSTORE_LOCAL, so that its memory is seen",
        )
    return Finding(
        "problem",
        f"the server is on this machine, but its memory is not seen: {lanes}",
        "serve without --no-local; containers need one network namespace, or a folder that both "
        "see, for --socket",
    )


def _is_rdma(transport: str) -> bool:
    return transport.startswith(_RDMA)
