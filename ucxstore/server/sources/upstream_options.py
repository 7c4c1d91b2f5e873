"""How a server reaches the servers that are its source. It asks no server."""

import socket
from collections.abc import Mapping
from dataclasses import replace

from ucxstore.base.address import Address, HostPort
from ucxstore.base.options import ClientOptions
from ucxstore.base.secret import Secret
from ucxstore.server.options.server_options import ServerOptions

# The options of a client that `storage_options` may have.
NAMES = ("secret", "secret_file", "encrypt", "integrity", "local", "network")

_WORDS = {"yes": True, "true": True, "no": False, "false": False}


def upstream_options(options: ServerOptions, timeout: float) -> ClientOptions:
    """Return the options of the client that asks the source.

    It has the server's own secret, and encrypts if the server does, unless `storage_options` says
    otherwise. An empty secret there is none.

    Parameters
    ----------
    options : ServerOptions
    timeout : float
        Seconds that a request may go without progress, and that connecting may take.

    Raises
    ------
    ValueError, OSError
        If an option is not usable; the message starts with "storage_options".
    """
    given = options.storage_options or {}
    for name in given:
        if name not in NAMES:
            raise ValueError(
                f"storage_options: {name!r} is no option for a source at other servers; there are "
                f"{', '.join(NAMES)}"
            )
    try:
        has_own = "secret" in given or "secret_file" in given
        encrypt = _decision(given, "encrypt")
        return ClientOptions.of(
            timeout=timeout,
            connect_timeout=timeout,
            secret=_secret_of(given) if has_own else options.secret,
            encrypt=options.encrypt or None if encrypt is None else encrypt,
            integrity=_decision(given, "integrity"),
            local=given.get("local"),
            network=given.get("network"),
            ucx=dict(options.ucx),
            progress=options.progress,
            select_pipeline=False,
        )
    except ValueError as error:
        raise ValueError(f"storage_options: {error}") from None


def with_secret_of_source(options: ServerOptions) -> ServerOptions:
    """Return options that ask the source by the secret of this process's environment, or by none.

    For servers with a new secret of their own. If `storage_options` has a secret, it stays.
    """
    given = dict(options.storage_options or {})
    if "secret" in given or "secret_file" in given:
        return options
    found = Secret.find()
    given["secret"] = "" if found is None else found.reveal().decode()
    return replace(options, storage_options=given)


def _secret_of(given: Mapping[str, str]) -> Secret | None:
    if "secret" in given and "secret_file" in given:
        raise ValueError("secret and secret_file exclude one another")
    if "secret" in given:
        return Secret(given["secret"]) if given["secret"] else None
    try:
        return Secret.from_file(given["secret_file"])
    except OSError as error:
        raise type(error)(f"storage_options: secret_file: {error}") from error


def _decision(given: Mapping[str, str], name: str) -> bool | None:
    if name not in given:
        return None
    word = given[name].lower()
    if word not in _WORDS:
        raise ValueError(f"{name}: {given[name]!r} is neither yes nor no")
    return _WORDS[word]


def refuse_itself(address: Address, bind: HostPort) -> None:
    """Refuse an address that names the server that asks, which listens at `bind`.

    Longer circles need no such check: the identity of a server follows from its source's identity,
    so none can have the identity that another one of the circle has met before.

    Raises
    ------
    ValueError
        The message starts with "storage".
    """
    if bind.port == 0:
        return  # nobody knows the port yet
    for server in address.servers:
        if server.port == bind.port and _addresses_of(server) & _own_addresses(bind, server):
            raise ValueError(f"storage: {str(address)!r}: {server} is this server itself")


def _own_addresses(bind: HostPort, server: HostPort) -> set[str]:
    """Return at which addresses of another server a server listens."""
    here = _addresses_of(bind)
    if here & {"0.0.0.0", "::"}:
        return {one for one in _addresses_of(server) if _is_of_this_host(one)}
    return here


def _addresses_of(server: HostPort) -> set[str]:
    try:
        found = socket.getaddrinfo(server.host, server.port, type=socket.SOCK_STREAM)
    except OSError:
        return set()
    return {str(address[0]) for *_, address in found}


def _is_of_this_host(address: str) -> bool:
    """Tell whether an address is one of this host: only such a one can be bound."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True
