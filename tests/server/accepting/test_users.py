"""A server without a secret serves the processes of its own user alone."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.adversity.scripts import Script
from tests.eventually import eventually
from tests.hosts.intruder import NOBODY
from ucxstore import Server, UcxStore
from ucxstore.base.native import core

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")

# Another user may not read what Python has still to import.
BECOME = "import encodings.idna, zarr.core.sync\nfrom tests.hosts import intruder\n"
BECOME += "intruder.become_nobody()\n"

TRY = """
store = UcxStore({address!r}, connect_timeout=20, local={local!r}, secret={secret!r})
try:
    assert store.get_sync("key").to_bytes() == b"value"
    store.delete_sync("key")
    print("deleted")
except ConnectError as error:
    print(error)
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    tmp_path.chmod(0o700)
    (tmp_path / "key").write_bytes(b"value")
    return tmp_path


def another_user(address: str, local: str, secret: str | None = None) -> str:
    """Read and delete as another user, and return what came of it."""
    code = BECOME + TRY.format(address=address, local=local, secret=secret)
    with Script(address, {}, code) as script:
        return script.end()


@as_root
def test_a_health_check_of_another_user_is_not_refused(root: Path) -> None:
    with Server(root) as server:
        place = server.address.removeprefix("ucx://").split(":")
        code = f"""
import socket
with socket.create_connection(({place[0]!r}, {place[1]})) as sock:
    nothing_happens(0.2)
"""
        with Script(server.address, {}, BECOME + code) as script:
            assert script.end() == ""
        eventually(lambda: server.stats()["probes"] == 1)
        assert server.stats()["turned_away"] == 0


@as_root
@pytest.mark.parametrize("local", ["auto", "off"])
class TestAnotherUser:
    def test_is_refused(self, root: Path, local: str) -> None:
        with Server(root) as server:
            said = another_user(server.address, local)
            assert "refused this client" in said
            assert f"user {NOBODY}'s" in said
            assert "secret" in said
            assert "--insecure" in said
            assert (root / "key").read_bytes() == b"value"
            assert server.sessions == 0
            eventually(lambda: server.stats()["turned_away"] == 1)
            with UcxStore(server.address, local=local) as store:
                assert store.get_sync("key") is not None

    def test_may_know_the_secret(self, root: Path, local: str) -> None:
        with Server(root, secret="shared") as server:
            assert "secret" in another_user(server.address, local)
            assert (root / "key").exists()
            assert "deleted" in another_user(server.address, local, "shared")
            assert not (root / "key").exists()

    def test_is_served_where_the_server_says_so(self, root: Path, local: str) -> None:
        with Server(root, insecure=True) as server:
            assert "deleted" in another_user(server.address, local)
            assert not (root / "key").exists()


@pytest.fixture
def connected() -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        server, _ = listener.accept()
        with client, server:
            yield client, server


class TestUserAtOtherEnd:
    def test_of_tcp(self, connected: tuple[socket.socket, socket.socket]) -> None:
        for sock in connected:
            assert core.user_at_other_end(sock.fileno()) == os.geteuid()

    def test_of_a_socket_of_ipv6_that_speaks_ipv4(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
            with socket.socket(socket.AF_INET6) as client:
                client.connect(("::ffff:127.0.0.1", port))
                server, _ = listener.accept()
                with server:
                    assert core.user_at_other_end(server.fileno()) == os.geteuid()

    def test_of_a_unix_socket(self) -> None:
        one, other = socket.socketpair()
        with one, other:
            assert core.user_at_other_end(one.fileno()) == os.geteuid()

    def test_of_one_that_is_closed(self, connected: tuple[socket.socket, socket.socket]) -> None:
        """The kernel shows it as user 0's, which it need not be."""
        client, server = connected
        server.sendall(b"unread")  # so it stays for a while
        client.close()
        assert core.user_at_other_end(server.fileno()) is None

    def test_of_no_socket(self) -> None:
        assert core.user_at_other_end(0) is None

    @as_root
    def test_of_another_users(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            code = "from tests.hosts import intruder\nimport socket, encodings.idna\n"
            code += "intruder.become_nobody()\n"
            code += f"sock = socket.create_connection({listener.getsockname()!r})\n"
            code += "sys.stdin.readline()\nsock.close()"
            with Script("ucx://127.0.0.1:1", {}, code) as script:
                server, _ = listener.accept()
                with server:
                    assert core.user_at_other_end(server.fileno()) == NOBODY
                script.say("end\n")
                assert script.end() == ""
