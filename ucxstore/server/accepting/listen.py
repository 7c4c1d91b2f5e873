"""Open the listening sockets of a server, and write the address that it advertises."""

import errno
import secrets
import socket
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path

from ucxstore.base.address import SCHEME, HostPort

# Connections that may wait to be accepted. All workers of a cluster connect at the same time.
_BACKLOG = 1024

_WILDCARDS = frozenset({"0.0.0.0", "::"})


def listen(bind: HostPort, *, anywhere: bool) -> socket.socket:
    """Bind and listen.

    Parameters
    ----------
    bind : HostPort
        Where to listen. A name is looked up.
    anywhere : bool
        Whether addresses other than loopback are allowed.

    Raises
    ------
    ValueError
        If the address is not loopback, and that is not allowed.
    OSError
        If the address is not one of this machine, or is in use.
    """
    family, host = resolve(bind)
    if not anywhere and not is_loopback(host):
        raise ValueError(
            f"bind: {bind} can be reached from other machines, and there is no secret; give one, "
            "or set insecure (--insecure) to serve anybody"
        )
    try:
        return listen_at(family, host, bind.port)
    except OSError as error:
        raise OSError(error.errno, _why_not(bind, error)) from None


def listen_at(family: socket.AddressFamily, host: str, port: int) -> socket.socket:
    """Bind to an address that was looked up, and listen; at ``::`` for both versions of IP."""
    both = family == socket.AF_INET6 and host in _WILDCARDS and socket.has_dualstack_ipv6()
    return socket.create_server((host, port), family=family, backlog=_BACKLOG, dualstack_ipv6=both)


def _why_not(bind: HostPort, error: OSError) -> str:
    """Say why nothing can listen at an address, and what to do."""
    match error.errno:
        case errno.EADDRINUSE:
            other = HostPort(bind.host, 0)
            return f"address {bind} is in use: another server? try --bind {other}"
        case errno.EACCES:
            return f"address {bind} is not allowed: ports below 1024 are for root; take another one"
        case errno.EADDRNOTAVAIL:
            return f"address {bind} is not one of this host; 0.0.0.0 stands for all that it has"
    return f"address {bind}: {error.strerror}"


def listen_locally(path: str | None) -> socket.socket:
    """Bind a Unix socket and listen.

    Parameters
    ----------
    path : str or None
        A file's, which is made; a socket that no server has any more is replaced. ``None`` for a
        name without a file, which nobody guesses.

    Raises
    ------
    OSError
        If the path cannot be used.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if path is not None:
            _clear(path)
        sock.bind(f"\0ucxstore-{secrets.token_hex(16)}" if path is None else path)
        sock.listen(_BACKLOG)
    except OSError as error:
        sock.close()
        raise OSError(error.errno, f"{error.strerror}: the socket {path!r}") from error
    return sock


def _clear(path: str) -> None:
    """Remove a socket whose server is gone."""
    if not Path(path).is_socket():
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            Path(path).unlink(missing_ok=True)


def resolve(bind: HostPort) -> tuple[socket.AddressFamily, str]:
    """Look up the address to listen at; ``OSError`` if there is none."""
    try:
        found = socket.getaddrinfo(
            bind.host, bind.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except socket.gaierror as error:
        raise OSError(errno.EADDRNOTAVAIL, f"address {bind}: {error.strerror}") from None
    family, _, _, _, address = found[0]
    return family, str(address[0])


def is_loopback(host: str) -> bool:
    """Tell whether an IP address can be reached only from this machine."""
    return ip_address(host.partition("%")[0]).is_loopback


def hidden_name(bind: HostPort, listener: socket.socket) -> str | None:
    """Return the address that a name has here, if others know it by another one.

    Debian's ``/etc/hosts`` has the host's own name at 127.0.1.1. Whoever binds to that name listens
    on the loopback alone. ``None`` for any other address, and for names that mean the loopback.
    """
    host = str(listener.getsockname()[0])
    is_meant = host == bind.host or "localhost" in bind.host or "loopback" in bind.host
    return None if is_meant or not is_loopback(host) else host


def advertise(bind: HostPort, listener: socket.socket) -> str:
    """Write the address under which others reach the listening socket."""
    host = socket.gethostname() if bind.host in _WILDCARDS else bind.host
    return f"{SCHEME}{HostPort(host, listener.getsockname()[1])}"


def addresses(bind: HostPort, listener: socket.socket) -> tuple[str, ...]:
    """Return the hosts by which other servers may reach the listening socket, best first."""
    if bind.host not in _WILDCARDS:
        return (str(listener.getsockname()[0]),)
    name = socket.gethostname()
    found = {name: None}
    with suppress(OSError):
        for *_, address in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM):
            found[str(address[0])] = None
    # The one that the way out begins with; to connect a datagram socket sends nothing.
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))
        found[probe.getsockname()[0]] = None
    return tuple(host for host in found if host == name or not is_loopback(host))
