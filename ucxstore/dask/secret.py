"""The secret of a deployment, which the cluster's processes find by the deployment's name."""

from typing import Self
from weakref import WeakValueDictionary

from ucxstore.secret import Secret

_held: "WeakValueDictionary[str, DeploymentSecret]" = WeakValueDictionary()


class DeploymentSecret(Secret):
    """A secret whose pickle holds the deployment's name alone.

    A process that unpickles it finds the secret if somebody there holds it: the deployment itself,
    or its plugin in a worker. It is not put into the environment, which child processes inherit
    and crash reports show.

    The holder also keeps the connections that are made with it: the stores of tasks come and go,
    and connecting takes tens of milliseconds of two processors.
    """

    __slots__ = ("__weakref__", "_deployment", "_links")

    _deployment: str
    _links: set[object] | None

    @classmethod
    def hold(cls, deployment: str, text: bytes) -> Self:
        """Make the secret known in this process for as long as the returned object lives."""
        secret = cls.of_deployment(deployment)
        secret._text = text
        secret._links = set()
        return secret

    @classmethod
    def of_deployment(cls, deployment: str) -> Self:
        """Return the secret of this process, or one that looks for it when it is used."""
        secret = _held.get(deployment)
        if not isinstance(secret, cls):
            secret = cls._located(None, None)
            secret._deployment = deployment
            secret._links = None
            _held[deployment] = secret
        return secret

    def keep(self, connector: object) -> None:
        """Keep a connection until `let_go`, if the secret is held here."""
        links = self._links
        if links is not None:
            links.add(connector)

    def let_go(self) -> None:
        """Keep connections no longer; those that no store uses are closed."""
        self._links = None

    def _find(self) -> tuple[bytes | None, list[str]]:
        text, problems = super()._find()
        if text is None:
            problems.insert(0, f"no server of the deployment {self._deployment} runs in it")
        return text, problems

    def __repr__(self) -> str:
        return f"Secret(of {self._deployment})"

    def __reduce__(self) -> tuple[object, ...]:
        return _unpickle_name, (self._deployment,)


# No method: cloudpickle, which Dask takes for what pickle cannot do, would take the class apart.
def _unpickle_name(deployment: str) -> DeploymentSecret:
    return DeploymentSecret.of_deployment(deployment)
