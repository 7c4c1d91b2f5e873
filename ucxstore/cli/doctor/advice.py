"""Advice of ``ucxstore doctor``, computed from its measurements. No I/O."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from ucxstore._ucx import UcxLibrary
from ucxstore.cli.doctor.machine import Machine
from ucxstore.cli.doctor.measure import Way
from ucxstore.cli.doctor.ports import Ports
from ucxstore.cli.text import size_text
from ucxstore.options import Local

SHARED = frozenset({"posix", "sysv", "cma", "knem", "xpmem"})  # of UCX: seldom used, or never
_LOCAL = "local"  # the plane of one host, as `store.stats()` names it
_RDMA = ("rc", "dc", "ud", "srd")

_FEW_FILES = 1024


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


def advise(library: UcxLibrary, machine: Machine, way: Way, local: Local) -> list[Finding]:
    """Return the findings about UCX, the limits of the machine, and the connection.

    Parameters
    ----------
    local : {"auto", "ucx", "off"}
        How the user wants to reach servers of this machine.
    """
    return [*_of_ucx(library, machine), *_of_limits(machine), _of_the_way(way, local)]


def advise_on_ports(ports: Ports, way: Way) -> list[Finding]:
    """Return what a firewall between the two must let through."""
    if way.same_host or not ports.data:
        return []
    return [
        Finding(
            "note",
            f"a firewall at the server must let this host in at {ports.control} and at UCX's "
            "ports; none at this host needs to let anybody in",
            "ucxstore serve --data-ports 7500-7599 chooses these: two for each client",
        )
    ]


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
    if machine.no_fence:
        yield Finding(
            "note",
            f"other hosts are not served, nor reached: {machine.no_fence}",
            "setcap cap_net_admin+ep on the Python, or a container with NET_ADMIN; with "
            "UCXSTORE_GATE=off, whoever can connect to this process can write to its memory",
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
            f"the server is on this machine, and UCXSTORE_LOCAL={local} asks for UCX: {lanes}",
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
