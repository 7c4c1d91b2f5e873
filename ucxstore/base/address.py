"""Parse and write addresses: ``ucx://host:port[,host:port...][/prefix]``.

No host name is looked up here, and no server is contacted.
"""

import re
from dataclasses import dataclass
from ipaddress import IPv6Address
from typing import Self

from ucxstore.base.errors import AddressError
from ucxstore.base.keys import find_problem

SCHEME = "ucx://"

# Host names and IPv4 addresses. 253 is the longest name that DNS has.
_HOST_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9._-]{0,251}[A-Za-z0-9_.])?")
_IPV6 = re.compile(r"[0-9A-Fa-f:.]+(%[A-Za-z0-9._-]+)?")  # IPv6Address checks what this admits
_PORT = re.compile(r"[0-9]{1,5}")


@dataclass(frozen=True, slots=True, order=True)
class HostPort:
    """Host and port of one server. Written as ``host:port``, IPv6 as ``[host]:port``.

    Parameters
    ----------
    host : str
        A host name, IPv4 or IPv6 address, the latter without brackets. It is lower-cased, and IPv6
        shortened, so that equal hosts compare equal.
    port : int
        0 to 65535. 0 asks for any free port; an `Address` cannot have it.

    Raises
    ------
    AddressError
        If host or port is not valid.
    """

    host: str
    port: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "host", _normalize_host(self.host))
        if not 0 <= self.port <= 0xFFFF:
            raise AddressError(f"port {self.port} is not between 0 and 65535")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse ``host:port``, with IPv6 addresses in brackets."""
        host, colon, port = text.rpartition(":")
        if not colon or port.endswith("]"):
            raise AddressError(f"{text!r} names no port")
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
            if ":" not in host:
                raise AddressError(f"{text!r}: only an IPv6 address may stand in brackets")
        elif ":" in host:
            raise AddressError(f"{text!r} needs brackets around its IPv6 address: [{host}]:{port}")
        if not _PORT.fullmatch(port):
            raise AddressError(f"{text!r} has a port that is not a number from 1 to 65535")
        return cls(host, int(port))

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Address:
    """A parsed ``ucx://`` address. ``str()`` writes it again, in its normal form.

    Parameters
    ----------
    servers : tuple of HostPort
        One or more, each once.
    prefix : str
        Prefix of every key, without a slash at either end; empty for none.

    Raises
    ------
    AddressError
        If there is no server, one twice or without a port, or if no key can have the prefix.
    """

    servers: tuple[HostPort, ...]
    prefix: str = ""

    def __post_init__(self) -> None:
        if not self.servers:
            raise AddressError("an address needs at least one host:port")
        if len(set(self.servers)) != len(self.servers):
            raise AddressError("an address names a server twice")
        for server in self.servers:
            if server.port == 0:
                raise AddressError(f"{server}: a server's port is from 1 to 65535")
        _check_prefix(self.prefix)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse an address.

        Parameters
        ----------
        text : str
            ``ucx://host:port[,host:port...][/prefix]``. Slashes at the prefix's ends are dropped;
            nothing in it is percent-decoded.

        Raises
        ------
        AddressError
            If the address is malformed; the message names it and what is wrong.
        """
        if not text.startswith(SCHEME):
            raise AddressError(f"invalid address {text!r}: it does not start with {SCHEME!r}")
        netloc, _, path = text.removeprefix(SCHEME).partition("/")
        try:
            if not netloc:
                raise AddressError("it names no host:port")
            servers = tuple(HostPort.parse(part) for part in netloc.split(","))
            return cls(servers, path.strip("/"))
        except AddressError as error:
            raise AddressError(f"invalid address {text!r}: {error}") from None

    def __str__(self) -> str:
        servers = ",".join(map(str, self.servers))
        return f"{SCHEME}{servers}/{self.prefix}" if self.prefix else f"{SCHEME}{servers}"


def _normalize_host(host: str) -> str:
    if ":" in host:
        try:
            if _IPV6.fullmatch(host):
                return str(IPv6Address(host))
        except ValueError:
            pass
        raise AddressError(f"{host!r} is not an IPv6 address")
    if not _HOST_NAME.fullmatch(host):
        raise AddressError(f"{host!r} is not a host name" if host else "the host is missing")
    return host.lower()


def _check_prefix(prefix: str) -> None:
    if not prefix:
        return
    problem = find_problem(prefix)
    if problem is not None:
        raise AddressError(f"prefix {prefix!r}: {problem}")
    for character in "?#":  # reserved, so that addresses may have options one day
        if character in prefix:
            raise AddressError(f"prefix {prefix!r}: {character!r} is not allowed in an address")
