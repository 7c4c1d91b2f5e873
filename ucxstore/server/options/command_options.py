"""`CommandOptions`: the options of ``ucxstore serve`` that are none of the server's own."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from ucxstore.base.environment import SERVE_PREFIX
from ucxstore.base.secret import ENVIRONMENT_FILE, ENVIRONMENT_SECRET, Secret
from ucxstore.server.options.checks import check_whole
from ucxstore.server.options.described import check_fields, option

# The variables that give a secret, or name its file.
_OF_SECRETS = (f"{SERVE_PREFIX}SECRET_FILE", ENVIRONMENT_SECRET, ENVIRONMENT_FILE)


def _texts(name: str, value: Sequence[str]) -> tuple[str, ...]:
    """Split a text at its commas; check that a list is one of texts."""
    found = value.split(",") if isinstance(value, str) else value
    if not all(isinstance(each, str) for each in found):
        raise TypeError(f"{name}: texts are needed, not {value!r}")
    return tuple(each.strip() for each in found)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandOptions:
    """The options of the command ``ucxstore serve``, beside those of `ServerOptions`.

    The help of each says what it is.
    """

    location: str = option(
        "",
        "a directory, file:///path, memory://, or s3://, gs://, az://, https://, or ucx:// "
        "of other servers",
        metavar="LOCATION",
        is_argument=True,
    )
    secret_file: str | None = option(
        None,
        "a file with the secret that clients must know",
        default_text="UCXSTORE_SECRET or UCXSTORE_SECRET_FILE",
        metavar="FILE",
        group="secret, metrics, log",
    )
    metrics: str | None = option(
        None,
        "the address of /metrics for Prometheus, /healthz and /readyz, over HTTP; loopback only, "
        "without --metrics-allow or --insecure",
        metavar="HOST:PORT",
    )
    metrics_allow: Sequence[str] = option(
        (),
        "a network whose machines may read these, such as 10.0.0.0/8; repeatable, or with commas. "
        "Others get 403",
        form="texts",
        check=_texts,
        metavar="NETWORK",
    )
    banner: bool = option(
        True,
        "say at the start what is served, to whom and at which ports; the address is said anyway",
    )
    verbose: int = option(
        0,
        "also log connections and evictions; -vv: each request, too",
        form="count",
        check=partial(check_whole, least=0),
        short="v",
    )
    log_format: str = option(
        "text", "readable lines, or a JSON object a line", choices=("text", "json")
    )
    log_file: str | None = option(
        None,
        "a file that the log is appended to; SIGHUP opens it anew",
        default_text="standard error",
        metavar="FILE",
    )
    pid_file: str | None = option(
        None,
        "a file for the process's id, from the start to the end of the server",
        metavar="FILE",
    )

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def has_files(self) -> bool:
        """Whether the secret or the log is in a file, which SIGHUP reads or opens anew."""
        is_named = not os.environ.get(ENVIRONMENT_SECRET) and os.environ.get(ENVIRONMENT_FILE)
        return bool(self.log_file or self.secret_file or is_named)

    def find_secret(self) -> Secret | None:
        """Return the secret in the file, or else that of the environment, if there is one.

        Raises
        ------
        OSError, ValueError
            If it cannot be read, or is none. Also if there is none, and a variable that gives one
            is empty: whoever sets it means a secret, and a server without one may be open to all.
        """
        if self.secret_file is not None:
            return Secret.from_file(self.secret_file)
        found = Secret.find()
        empty = [name for name in _OF_SECRETS if name in os.environ]
        if found is None and empty:
            raise ValueError(
                f"secret: the environment variable {empty[0]} is empty: give the secret, or unset "
                "the variable to serve without one"
            )
        return found
