"""Stores of several servers, over what they choose by themselves where all is on one host.

To connect over UCX would take most of the time of these tests.
"""

from tests.fixtures import over_the_local_plane

__all__ = ["over_the_local_plane"]
