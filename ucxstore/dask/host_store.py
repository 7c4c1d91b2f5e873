"""`HostStore`: a store of a deployment that each task reads through the server of its own host."""

from collections.abc import Callable
from typing import Any

from ucxstore.base.address import Address
from ucxstore.base.keys import is_scratch
from ucxstore.base.options import ClientOptions
from ucxstore.client.identities import Known
from ucxstore.dask.secret import DeploymentSecret
from ucxstore.stores.store import UcxStore


class HostStore(UcxStore):
    """A store over the servers of several hosts, which all have the same values.

    Unpickled in a worker, it is one of the server of the worker's host. Elsewhere it uses all.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        unpickle, state = super().__reduce__()
        return _at_home, (unpickle, state)


# Not a method: Dask may use cloudpickle, which would pickle the class by value.
def _at_home(
    unpickle: Callable[..., UcxStore],
    state: tuple[type[UcxStore], Address, ClientOptions, bool, Known],
) -> UcxStore:
    kind, address, options, read_only, known = state
    secret = options.secret
    home = secret.home if isinstance(secret, DeploymentSecret) else None
    # A scratch space is in the memory of all servers.
    if home is not None and not is_scratch(address.prefix):
        server, identity = home
        address, known = Address((server,), address.prefix), Known(told={server: identity})
    return unpickle(kind, address, options, read_only, known)
