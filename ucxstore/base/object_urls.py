"""Open the URLs of object stores by obstore, also if their endpoint is plain HTTP."""

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from obstore.store import ObjectStore

# By obstore's kinds of stores: how their variables begin, and the names that give an endpoint. Of
# each group, the first that is given holds. Options have the same names, with the beginning or
# without, in capital letters or not.
_ENDPOINTS = {
    "s3": (
        "AWS_",
        (
            ("ENDPOINT_URL_S3", "ENDPOINT_URL", "ENDPOINT"),
            ("ENDPOINT_URL_STS", "STS_ENDPOINT"),
        ),
    ),
    "azure": (
        "AZURE_",
        (("STORAGE_ENDPOINT", "ENDPOINT"), ("STORAGE_AUTHORITY_HOST", "AUTHORITY_HOST")),
    ),
    "gcs": ("GOOGLE_", (("BASE_URL",),)),
}

# obstore takes it, whatever the options say.
_BEFORE_OPTIONS = "AWS_ENDPOINT_URL_S3"

# Of obstore's HTTP client, which variables give, too. obstore takes them apart from other options.
_ALLOW = "ALLOW_HTTP"
_CLIENT = {
    _ALLOW,
    "ALLOW_INVALID_CERTIFICATES",
    "CONNECT_TIMEOUT",
    "DEFAULT_CONTENT_TYPE",
    "HTTP1_ONLY",
    "HTTP2_KEEP_ALIVE_INTERVAL",
    "HTTP2_KEEP_ALIVE_TIMEOUT",
    "HTTP2_KEEP_ALIVE_WHILE_IDLE",
    "HTTP2_ONLY",
    "POOL_IDLE_TIMEOUT",
    "POOL_MAX_IDLE_PER_HOST",
    "PROXY_CA_CERTIFICATE",
    "PROXY_EXCLUDES",
    "PROXY_URL",
    "RANDOMIZE_ADDRESSES",
    "READ_TIMEOUT",
    "TIMEOUT",
    "USER_AGENT",
}

_YES = {"1", "true", "on", "yes", "y"}


def open_object_store(
    url: str,
    options: Mapping[str, str] | None = None,
    *,
    warn: Callable[[str], object],
    **more: Any,
) -> "ObjectStore":
    """Open the object store that a URL names.

    obstore refuses plain HTTP unless it is told otherwise, and says so at the first request only,
    without naming a cause. Whoever writes an endpoint that begins with ``http:`` means it.

    Parameters
    ----------
    url : str
        Such as ``s3://bucket/prefix`` or ``http://host/prefix``.
    options : mapping, optional
        The store's configuration for obstore, such as ``{"endpoint": ...}``, options of its HTTP
        client included. The rest is taken from the usual environment variables.
    warn : callable
        Called with a sentence if the endpoint is plain HTTP, and nothing has said that this is
        allowed.
    **more
        As obstore's ``from_url`` takes it.

    Raises
    ------
    ImportError
        If obstore is not installed.
    ValueError
        If an option gives another endpoint than the variable that obstore prefers to it.
    Exception
        Of any kind, as obstore does not document which, if the store cannot be opened.
    """
    from obstore import parse_scheme
    from obstore.store import from_url

    config: Any = dict(options or {})
    kind = parse_scheme(url)
    if kind == "http" and url.lower().startswith("http:"):
        more["client_options"] = {_ALLOW.lower(): True}
    elif kind in _ENDPOINTS:
        prefix, groups = _ENDPOINTS[kind]
        bare = {name: name.upper().removeprefix(prefix) for name in config}
        client = {bare[name]: config.pop(name) for name in bare if bare[name] in _CLIENT}
        # These replace all that obstore would take from the environment.
        variables = {name: os.environ.get(prefix + name) for name in _CLIENT}
        client = {name: text for name, text in variables.items() if text is not None} | client
        plain = _plain_endpoint(prefix, groups, config)
        if plain and str(client.get(_ALLOW)).lower() not in _YES:
            client[_ALLOW] = "true"
            warn(
                f"{plain}: the endpoint is plain HTTP, so values can be read and changed on their "
                f"way; {prefix}{_ALLOW}=true says that this is meant"
            )
        if client:
            more["client_options"] = {name.lower(): text for name, text in client.items()}
    return from_url(url, config=config or None, **more)


def _plain_endpoint(
    prefix: str, groups: tuple[tuple[str, ...], ...], config: Mapping[str, str]
) -> str:
    """Return the name of an option or a variable that gives a plain endpoint; "" for none."""
    given = {prefix + name.upper().removeprefix(prefix): name for name in config}
    for group in groups:
        names = [prefix + name for name in group]
        option = next((given[name] for name in names if name in given), None)
        variable = next((name for name in names if os.environ.get(name)), None)
        said = os.environ.get(_BEFORE_OPTIONS)
        if option is not None and _BEFORE_OPTIONS in names and said not in {None, config[option]}:
            raise ValueError(
                f"{option}: {_BEFORE_OPTIONS} of the environment goes before it; unset that"
            )
        if option is not None and _is_plain(config[option]):
            return option
        if option is None and variable is not None and _is_plain(os.environ[variable]):
            return variable
    return ""


def _is_plain(endpoint: str) -> bool:
    return endpoint.strip().lower().startswith("http:")
