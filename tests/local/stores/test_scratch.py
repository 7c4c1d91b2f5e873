"""The tests of tests/stores/test_scratch.py, over the local plane."""

from tests.local.servers import local_servers as local_servers
from tests.stores.test_scratch import *  # noqa: F403
