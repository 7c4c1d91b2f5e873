"""How much of a processor the threads of a server get that others of them want, too."""

from pathlib import Path

from ucxstore import Server, UcxStore


def niceness_of_threads(pid: int) -> dict[str, list[int]]:
    """Return how nice threads are, by their names."""
    found: dict[str, list[int]] = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        name, _, fields = (task / "stat").read_text().partition("(")[2].rpartition(")")
        found.setdefault(name, []).append(int(fields.split()[16]))
    return found


def test_handshakes_give_way_to_sessions() -> None:
    """Also to threads that a handshake has made: those of UCX."""
    with Server.spawn("memory://") as server:
        for local in ("auto", "ucx"):
            with UcxStore(server.address, local=local) as store:
                store.ping_sync()
        found = niceness_of_threads(server.pid)
    assert found["ucxstore-loc0"] == found["ucxstore-srv0"] == [0]
    assert sum(max(nice) > 0 for name, nice in found.items() if not name.startswith("ucxs")) == 1
