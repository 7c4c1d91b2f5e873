"""Clients and servers agree on the record of a set, also at the same moment, or half-way."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.conftest import address_of
from tests.eventually import eventually
from tests.values import as_buffer
from ucxstore import ClusterError, ConnectError, UcxStore
from ucxstore.cluster.agreement import Agreement, forget, settle
from ucxstore.cluster.membership import Membership
from ucxstore.cluster.record import Record
from ucxstore.server import Server
from ucxstore.stores.store import connectors_of

SECONDS = 30.0


def agreement_of(address: str) -> Agreement:
    agreement = Agreement(connectors_of(UcxStore(address)), SECONDS)
    agreement.greet()
    return agreement


def kept_by(server: Server) -> Record | None:
    return agreement_of(server.address).record()


def test_two_that_are_first_at_once_agree(servers: list[Server]) -> None:
    addresses = [address_of(servers), address_of(servers[::-1]).replace("127.0.0.1", "localhost")]
    agreements = [agreement_of(address) for address in addresses * 4]
    with ThreadPoolExecutor(len(agreements)) as threads:
        records = list(threads.map(lambda one: one.settle(), agreements))
    assert all(record == records[0] for record in records)
    assert [kept_by(server) for server in servers] == records[:3]


def test_one_that_was_overtaken(servers: list[Server]) -> None:
    """It has seen that there is no record, and then another client makes one."""
    early = agreement_of(address_of(servers))
    made = agreement_of(address_of(servers).replace("127.0.0.1", "localhost")).settle()
    assert early.settle() == made
    assert all(place.name.startswith("localhost") for place in made.members)


def test_one_whose_connections_another_has_ended(
    servers: list[Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has connected to all of them when another client makes the record."""
    connect_once = Membership._connect_once
    others = [agreement_of(address_of(servers).replace("127.0.0.1", "localhost"))]

    def overtaken(membership: Membership, timeout: float) -> None:
        connect_once(membership, timeout)
        while others:
            others.pop().settle()
            eventually(lambda: not any(one.is_connected for one in membership.members))

    monkeypatch.setattr(Membership, "_connect_once", overtaken)
    with UcxStore(address_of(servers)) as store:
        store.set_sync("k", as_buffer(b"value"))
        found = store.get_sync("k")
    assert found is not None
    assert found.to_bytes() == b"value"
    assert not others


@pytest.mark.parametrize(
    ("newcomer", "why"),
    [
        (0, "belong to different sets"),  # it has already taken the new record
        (1, "names 3 servers, and their set has 2"),
        (2, "names 3 servers, and their set has 2"),
    ],
)
def test_sets_that_overlap_do_not_both_come_to_be(
    servers: list[Server], newcomer: int, why: str
) -> None:
    """Whichever server, in the order of the identities, is not of the first set."""
    servers.sort(key=lambda server: server.identity)
    others = [server for server in servers if server is not servers[newcomer]]
    both = [agreement_of(address_of(some)) for some in (others, servers)]
    both[0].settle()
    with pytest.raises(ClusterError, match=why):
        both[1].settle()
    with pytest.raises(ClusterError, match=why):
        agreement_of(address_of(servers)).settle()


def test_a_member_without_the_record_and_one_with_an_old_one(servers: list[Server]) -> None:
    address = address_of(servers)
    record = agreement_of(address).settle()
    newer = record.forget(2)
    some = agreement_of(address_of(servers))
    index = next(n for n, one in enumerate(servers) if one.identity == newer.members[0].identity)
    server = list(some.welcomes)[index]
    assert some.keep(server, newer) == newer
    rest = [one for one in servers if one.identity in newer.identities]
    assert agreement_of(address_of(rest)).settle() == newer
    assert [kept_by(one) for one in rest] == [newer, newer]


def test_what_was_changed_meanwhile_stays(servers: list[Server]) -> None:
    agreement = agreement_of(address_of(servers))
    record = agreement.settle()
    late = agreement_of(address_of(servers))
    newer = record.forget(0)
    for server in agreement.welcomes:
        agreement.keep(server, newer)
    for server in late.welcomes:
        assert late.keep(server, record.forget(1)) == newer


def test_a_complete_set_is_asked_for_nothing(
    servers: list[Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    with UcxStore(address_of(servers)) as store:
        assert store.get_sync("c/0") is None
        store.ping_sync()
        monkeypatch.setattr(Agreement, "greet", None)
        with UcxStore(address_of(servers[::-1])) as other:
            assert other.get_sync("c/0") is None
        welcomes = {
            server: connector.last.welcome for server, connector in connectors_of(store).items()
        }
        assert settle(connectors_of(store), welcomes, SECONDS) is not None


def test_a_member_is_forgotten(servers: list[Server]) -> None:
    address = address_of(servers)
    agreement_of(address).settle()
    connectors = connectors_of(UcxStore(address))
    name = str(list(connectors)[1])

    def which(record: Record) -> int:
        return [place.name for place in record.members].index(name)

    left = forget(connectors, which, SECONDS)
    assert name not in [place.name for place in left.members]
    assert [kept_by(server) for server in servers] == [left, None, left]
    with pytest.raises(ClusterError, match="names 3 servers, and their set has 2"):
        UcxStore(address).get_sync("c/0")
    with (
        UcxStore(address_of([servers[0], servers[2]])) as store,
        UcxStore(servers[1].address) as alone,
    ):
        assert store.get_sync("c/0") is None
        assert alone.get_sync("c/0") is None
    both = connectors_of(UcxStore(address_of([servers[0], servers[2]])))
    last = forget(both, lambda _: 0, SECONDS)
    with pytest.raises(ClusterError, match="is the only member of its set"):
        forget(both, lambda _: 0, SECONDS)
    alone_again = next(one for one in servers if one.identity == last.members[0].identity)
    with UcxStore(alone_again.address) as store:
        assert store.get_sync("c/0") is None


def test_servers_without_a_record_have_no_member_to_forget(servers: list[Server]) -> None:
    with pytest.raises(ClusterError, match="they keep no record"):
        forget(connectors_of(UcxStore(address_of(servers))), lambda _: 0, SECONDS)


def test_a_directory_that_is_gone_keeps_no_record(servers: list[Server], tmp_path: Path) -> None:
    (tmp_path / "1").rename(tmp_path / "away")
    (tmp_path / "1").mkdir()
    with pytest.raises(ConnectError, match="is not the directory that is served"):
        agreement_of(address_of(servers)).settle()
    assert not list((tmp_path / "1").iterdir())


def test_who_looks_at_what_servers_are_is_not_refused(servers: list[Server]) -> None:
    with UcxStore(address_of(servers)) as store:
        store.ping_sync()
        eventually(lambda: all(server.stats()["probes"] for server in servers))
    assert [server.stats()["turned_away"] for server in servers] == [0, 0, 0]
