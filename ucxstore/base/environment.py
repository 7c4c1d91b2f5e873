"""The variables of the environment that ucxstore knows. Any other ``UCXSTORE_...`` is a mistake.

Each is read where its value is needed. What is misspelled would be read nowhere, so whoever makes a
store or a server looks for that first.
"""

from collections.abc import Iterable, Mapping

from ucxstore.base.showing import suggest

PREFIX = "UCXSTORE_"

# Of the options of ``ucxstore serve``; their names follow.
SERVE_PREFIX = "UCXSTORE_SERVE_"

# What this package and its core read beside these options.
READ = (
    "UCXSTORE_LOCAL",
    "UCXSTORE_NETWORK",
    "UCXSTORE_RECYCLE_BYTES",
    "UCXSTORE_SECRET",
    "UCXSTORE_SECRET_FILE",
    "UCXSTORE_SELECT_PIPELINE",
    "UCXSTORE_SLOW_REQUEST",
    "UCXSTORE_UCX",
)

# What others read, in whose processes the package is used: deploy/slurm/ucxstore.sbatch and the
# programs that it starts, and the tests of this repository.
READ_BY_OTHERS = (
    "UCXSTORE_ADDRESS",
    "UCXSTORE_BIND",
    "UCXSTORE_COMMAND",
    "UCXSTORE_LOCATION",
    "UCXSTORE_OPTIONS",
    "UCXSTORE_PORT",
    "UCXSTORE_S3_ENDPOINT",
    "UCXSTORE_SHARED",
    "UCXSTORE_START_SECONDS",
)

# Kubernetes makes variables of the name of each service, in all pods beside it: this one, and
# others with `_SERVICE_` or `_PORT` in its place.
_OF_SERVICES = "_SERVICE_HOST"


def check_variables(environment: Mapping[str, str], serve: Iterable[str] | None = None) -> None:
    """Refuse variables that begin as ours do, are not empty, and are none.

    Parameters
    ----------
    environment : mapping
        The environment.
    serve : iterable of str or None
        The variables of ``ucxstore serve``. ``None`` in a process that does not read these: then
        no variable that begins as they do is looked at.

    Raises
    ------
    ValueError
        If there is one; the message names each, and what may have been meant.
    """
    services = _services(environment)
    known = {*READ, *READ_BY_OTHERS, *(serve or ())}
    unknown = [
        name
        for name, text in environment.items()
        if name.startswith(PREFIX)
        and text
        and name not in known
        and not name.startswith(services)
        and not (serve is None and name.startswith(SERVE_PREFIX))
    ]
    if unknown:
        lines = (f"{name}: there is no such variable{_meant(name, known)}" for name in unknown)
        raise ValueError("; ".join(sorted(lines)))


def _services(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return how the variables begin that Kubernetes has made."""
    services = [
        name.removesuffix(_OF_SERVICES) for name in environment if name.endswith(_OF_SERVICES)
    ]
    return tuple(f"{name}{kind}" for name in services for kind in ("_SERVICE_", "_PORT"))


def _meant(name: str, known: Iterable[str]) -> str:
    """Return a question; what all names have in common makes none of them a neighbour."""
    prefix = SERVE_PREFIX if name.startswith(SERVE_PREFIX) else PREFIX
    ends = {one.removeprefix(prefix) for one in known if one.startswith(prefix)}
    return suggest(name.removeprefix(prefix), ends, prefix)
