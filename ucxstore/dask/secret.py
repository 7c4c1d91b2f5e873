"""`DeploymentSecret`: the secret of a deployment, found by the deployment's name."""

from typing import Self
from weakref import WeakValueDictionary

from ucxstore.base.address import HostPort
from ucxstore.base.secret import Secret

_held: "WeakValueDictionary[str, DeploymentSecret]" = WeakValueDictionary()


class DeploymentSecret(Secret):
    """A secret whose pickle has only the deployment's name.

    A process that unpickles it has the secret if something there holds it: the deployment, or its
    plugin in a worker. It is not put into the environment, since child processes inherit that and
    crash reports show it.

    The holder also keeps the connections that are made with the secret. Stores in tasks are short
    lived, and connecting takes tens of milliseconds of processor time on both sides.

    Attributes
    ----------
    home : tuple of HostPort and bytes, or None
        In a worker, the server of its host and its identity, if the workers of a host share one,
        and the servers of other hosts have the same values.
    """

    __slots__ = ("__weakref__", "_connectors", "_deployment", "home")

    _deployment: str
    _connectors: set[object] | None
    home: tuple[HostPort, bytes] | None

    @classmethod
    def hold(cls, deployment: str, text: bytes) -> Self:
        """Make the secret known in this process for as long as the returned object lives."""
        secret = cls.of_deployment(deployment)
        secret._hold(text)
        return secret

    @classmethod
    def of_deployment(cls, deployment: str) -> Self:
        """Return the secret of a deployment in this process. Its text may become known later."""
        secret = _held.get(deployment)
        if not isinstance(secret, cls):
            secret = cls._located(None, None)
            secret._deployment = deployment
            secret._connectors = None
            secret.home = None
            _held[deployment] = secret
        return secret

    def _hold(self, text: bytes) -> None:
        self._text = text
        self._connectors = set()

    def keep(self, connector: object) -> None:
        """Keep a connection until `let_go`, if the secret is held here."""
        connectors = self._connectors
        if connectors is not None:
            connectors.add(connector)

    def let_go(self) -> None:
        """Release the connections that are kept; those that no store uses are closed."""
        self._connectors = None

    def _find(self) -> tuple[bytes | None, list[str]]:
        text, problems = super()._find()
        if text is None:
            problems.insert(0, f"no server of the deployment {self._deployment} runs in it")
        return text, problems

    def __repr__(self) -> str:
        return f"Secret(of {self._deployment})"

    def __reduce__(self) -> tuple[object, ...]:
        return _unpickle_name, (self._deployment,)


# Not a method: Dask may use cloudpickle, which would pickle the class by value.
def _unpickle_name(deployment: str) -> DeploymentSecret:
    return DeploymentSecret.of_deployment(deployment)
