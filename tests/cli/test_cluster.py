"""``ucxstore cluster``: what it shows of a set, and what it changes."""

from pathlib import Path

from zarr.core.buffer import cpu

from tests.cli.command import run
from tests.conftest import address_of, place_of
from ucxstore import UcxStore
from ucxstore.server import Server

KEYS = [f"c/{number}" for number in range(30)]


def fill(address: str) -> None:
    with UcxStore(address) as store:
        for key in KEYS:
            store.set_sync(key, cpu.Buffer.from_bytes(bytes(100)))


def rows_of(output: str) -> dict[str, list[str]]:
    """Return the cells of each row of the table after the member's name, by the server."""
    lines = [line.split() for line in output.splitlines()]
    return {cells[0]: cells[1:] for cells in lines if cells[0] != "member"}


def test_a_set_is_shown(servers: list[Server]) -> None:
    address = address_of(servers)
    before = run("cluster", address)
    assert before.returncode == 0, before.stderr
    assert "keep no record" in before.stdout
    assert before.stdout.count("no member yet") == 3
    fill(address)
    # Also under other names.
    for shown in (address, address.replace("127.0.0.1", "localhost")):
        result = run("cluster", shown)
        assert result.returncode == 0, result.stderr
        rows = rows_of(result.stdout)
        assert set(rows) == {place_of(server) for server in servers}
        for server in servers:
            identity, at, state, values, *_ = rows[place_of(server)]
            assert (identity, state) == (server.identity.hex(), "there")
            assert at.endswith(place_of(server).rpartition(":")[2])
            assert int(values) > 0
        assert sum(int(cells[3]) for cells in rows.values()) == len(KEYS)


def test_a_loss_is_shown_and_accepted(servers: list[Server]) -> None:
    address = address_of(servers)
    fill(address)
    servers[1].close()
    gone = run("cluster", address)
    assert gone.returncode == 1
    assert rows_of(gone.stdout)[place_of(servers[1])][1] == "missing"
    with Server("memory://", place_of(servers[1])) as new:
        foreign = run("cluster", address)
        assert foreign.returncode == 1
        assert "foreign" in foreign.stdout
        assert new.identity.hex() in foreign.stdout
        accepted = run("cluster", "accept-loss", address)
        assert accepted.returncode == 0, accepted.stderr
        assert new.identity.hex() in accepted.stdout
        assert servers[1].identity.hex() not in accepted.stdout
        assert run("cluster", address).returncode == 0
        with UcxStore(address) as store:
            found = [store.get_sync(key) for key in KEYS]
        assert None in found
        assert any(found)


def test_a_member_is_forgotten(servers: list[Server]) -> None:
    address = address_of(servers)
    fill(address)
    servers[2].close()
    for wrong in ("nobody", ""):
        result = run("cluster", "forget", address, wrong)
        assert result.returncode == 1
        assert servers[2].identity.hex() in result.stderr
    result = run("cluster", "forget", address, servers[2].identity.hex()[:12])
    assert result.returncode == 0, result.stderr
    assert servers[2].identity.hex() not in result.stdout
    with UcxStore(address_of(servers[:2])) as store:
        assert any(store.get_sync(key) is not None for key in KEYS)
    assert run("cluster", address_of(servers[:2])).returncode == 0


def test_servers_that_share_their_values(tmp_path: Path) -> None:
    with (
        Server(tmp_path, shared=True) as one,
        Server(tmp_path, shared=True) as other,
        Server(tmp_path / "else", shared=True, create=True) as foreign,
    ):
        result = run("cluster", address_of([one, other]))
        assert result.returncode == 0, result.stderr
        assert "share their values" in result.stdout
        assert result.stdout.count(one.identity.hex()) == 2
        assert run("cluster", address_of([one, foreign])).returncode == 1


def test_nobody_is_there(servers: list[Server]) -> None:
    servers[0].close()
    for words in ((), ("accept-loss",)):
        result = run("cluster", *words, servers[0].address)
        assert result.returncode == 5
        assert result.stderr.startswith("ucxstore cluster: ")


def test_wrong_arguments() -> None:
    for words in ((), ("forget",), ("accept-loss",), ("forget", "ucx://a:1"), ("http://a",)):
        assert run("cluster", *words).returncode == 2
