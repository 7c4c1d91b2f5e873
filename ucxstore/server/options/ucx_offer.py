"""Decide whether a server offers UCX to its clients, and how. No I/O."""

from collections.abc import Mapping
from dataclasses import dataclass

from ucxstore.base.options import UcxConfig, without_tcp
from ucxstore.server.options.server_options import ServerOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class UcxOffer:
    """How a server offers UCX.

    Attributes
    ----------
    config : UcxConfig
    is_asked : bool
        Whether the server's user asks for it. Else its host has RDMA, and UCX uses no TCP.
    over_tcp : bool
        Whether UCX may listen at TCP ports of its own, where it believes whoever connects.
    """

    config: UcxConfig
    is_asked: bool
    over_tcp: bool


def offer_of(
    options: ServerOptions, environment: Mapping[str, str], *, rdma: bool
) -> UcxOffer | None:
    """Return how a server offers UCX; ``None`` if it does not, as where it encrypts.

    Parameters
    ----------
    options : ServerOptions
    environment : mapping
        Its ``UCX_TLS`` asks for UCX, too.
    rdma : bool
        Whether the host has RDMA.
    """
    network, config = options.network_way, options.ucx_config
    is_asked = network == "ucx" or options.asks_for_ucx or bool(environment.get("UCX_TLS"))
    if options.encrypt or network == "tcp" or not (is_asked or rdma):
        return None
    if not is_asked:
        return UcxOffer(config=without_tcp(config), is_asked=False, over_tcp=False)
    said = dict(config.options).get("TLS", environment.get("UCX_TLS", "all"))
    return UcxOffer(config=config, is_asked=True, over_tcp=_has_tcp(said))


def _has_tcp(transports: str) -> bool:
    """Tell whether TCP is among what UCX's option TLS says."""
    names = {one.strip(" \\").partition(":")[0] for one in transports.removeprefix("^").split(",")}
    if transports.startswith("^"):
        return "tcp" not in names
    return bool(names & {"tcp", "all", "*"})
