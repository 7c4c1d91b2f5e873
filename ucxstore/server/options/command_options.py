"""`CommandOptions`: the options of ``ucxstore serve`` that are none of the server's own."""

import os
from collections.abc import Sequence
from dataclasses import dataclass

from ucxstore.base.environment import SERVE_PREFIX
from ucxstore.base.secret import ENVIRONMENT_FILE, ENVIRONMENT_SECRET, Secret
from ucxstore.server.options.checks import check_verbose
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

    Parameters
    ----------
    location : str
        What is served; empty if nothing was given.
    secret_file : str or None
        The file with the secret.
    metrics : str or None
        ``host:port`` of metrics.
    metrics_allow : sequence of str
        Networks that may read them, such as ``"10.0.0.0/8"``; also a text with commas.
    banner : bool
        Whether to say more than the address at the start.
    verbose : int
        1 to log connections and evictions, too; 2 to log each request.
    log_format : {"text", "json"}
        How lines of the log are written.
    log_file : str or None
        The file of the log; standard error if ``None``.
    pid_file : str or None
        The file for the process's id.
    """

    location: str = option(
        "",
        "a directory, file:///path, memory://, or s3://, gs://, az://, https://",
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
        default_text="none",
        metavar="HOST:PORT",
    )
    metrics_allow: Sequence[str] = option(
        (),
        "a network whose machines may read these, such as 10.0.0.0/8; repeatable, or with commas. "
        "Others get 403",
        "texts",
        check=_texts,
        default_text="none",
        metavar="NETWORK",
    )
    banner: bool = option(
        True,
        "say at the start what is served, to whom and at which ports; the address is said anyway",
        "flag",
        default_text="yes",
    )
    verbose: int = option(
        0,
        "also log connections and evictions; -vv: each request, too",
        "count",
        check=check_verbose,
        default_text="0",
        short="v",
    )
    log_format: str = option(
        "text",
        "readable lines, or a JSON object a line",
        "choice",
        default_text="text",
        choices=("text", "json"),
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
        default_text="none",
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
