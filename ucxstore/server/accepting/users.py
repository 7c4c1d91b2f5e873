"""Whom a server without a secret serves: the processes of its own user, on its own host."""

import os
from collections.abc import Callable

from ucxstore.base.errors import AuthenticationError

type Admit = Callable[[int | None], None]


def admit_all(user: int | None) -> None:
    """Admit a peer, whoever it is."""


def admit_own_user(user: int | None) -> None:
    """Admit a peer if it is a process of this process's user.

    Parameters
    ----------
    user : int or None
        Whose process it is; ``None`` if that is not known.

    Raises
    ------
    AuthenticationError
        If it is another user's, or the kernel does not tell whose it is; the message says what to
        do.
    """
    own = os.geteuid()
    if user == own:
        return
    whose = "the kernel does not say whose this one is"
    if user is not None:
        whose = f"this one is user {user}'s"
    raise AuthenticationError(
        f"without a secret it serves only processes of its own user ({own}), and {whose}; "
        "give both sides a secret, or start the server with insecure=True (--insecure)"
    )
