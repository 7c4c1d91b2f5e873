"""A process of another user."""

import os

NOBODY = 65534


def become_nobody() -> None:
    """Go on as another user."""
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
