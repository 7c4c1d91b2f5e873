"""The channel to the servers of an address: to one, or to several."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ucxstore.base.address import HostPort
from ucxstore.base.counters import Counters
from ucxstore.base.options import ClientOptions
from ucxstore.client.channel import Channel
from ucxstore.client.connections import Connector, connector_to
from ucxstore.client.identities import Identities
from ucxstore.cluster.member import Member
from ucxstore.cluster.one_server import OneServer


def connectors_to(
    servers: tuple[HostPort, ...], options: ClientOptions
) -> dict[HostPort, Connector]:
    """Return the connector to each server, in the order of the address."""
    return {server: connector_to(server, options) for server in servers}


def channel_over(
    connectors: Mapping[HostPort, Connector],
    identities: Identities,
    counters: Counters,
    options: ClientOptions,
) -> Channel:
    """Make the channel to servers; it connects when it is first used.

    Parameters
    ----------
    connectors : mapping
        The connector to each server, in the order of the address.
    identities : Identities
        Which identities of the servers are relied on.
    counters : Counters
        Where a cluster counts.
    options : ClientOptions
    """
    members = [Member(*each, identities, counters) for each in connectors.items()]
    if len(members) == 1:
        return OneServer(members[0], identities, options)
    from ucxstore.cluster.cluster import Cluster  # not for one server

    return Cluster(members, identities, options)


class Connected(NamedTuple):
    """What is known of open connections.

    Parameters
    ----------
    lanes : list of str
        The transports that UCX chose, each once; ``"local"`` for what does without UCX.
    checked, encrypted : bool
        Whether all of them have checksums, or are encrypted; ``False`` for none.
    """

    lanes: list[str]
    checked: bool
    encrypted: bool


def connected(connectors: Iterable[Connector]) -> Connected:
    """Look at the connections that are open; never blocks."""
    found = [connector.current() for connector in connectors]
    natives = [connection.native for connection in found if connection is not None]
    return Connected(
        list(dict.fromkeys(lane for native in natives for lane in native.lanes)),
        bool(natives) and all(native.checked for native in natives),
        bool(natives) and all(native.encrypted for native in natives),
    )
