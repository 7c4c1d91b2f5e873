"""The transports of our rows: a store comes by its own, and one that came by another is noticed."""

import pytest

from profiles.stores import ROWS, TRANSPORTS, check_transport, opened
from ucxstore import Server, UcxStore

BY_TRANSPORT = {row.transport: row for row in ROWS if row.store == "UcxStore, memory"}


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_store_comes_by_its_transport(transport: str) -> None:
    row = BY_TRANSPORT[transport]
    with (
        Server("memory://", **row.server_options) as server,
        opened(row, server.address, None) as store,
    ):
        assert isinstance(store, UcxStore)
        assert store.get_sync("missing") is None
        check_transport(row, store)
        for other in TRANSPORTS.keys() - {transport}:
            with pytest.raises(AssertionError, match=f"the lanes over {other} were"):
                check_transport(BY_TRANSPORT[other], store)
