"""Where the kernel fences nobody off from UCX, UCX is not used, unless the user says so."""

import pytest

from tests.adversity.scripts import Script
from ucxstore import ConnectError, Server, UcxStore

REFUSE = "from tests.hosts import refusing\nrefusing.refuse(refusing.FILTERS, refusing.KEYS)\n"
OFF = "os.environ['UCXSTORE_GATE'] = 'off'\n"

CLIENT = """
with UcxStore({address!r}, local="ucx") as store:
    try:
        store.set_sync("key", as_buffer(b"value"))
        print(store.get_sync("key").to_bytes() == b"value")
    except (ConnectError, ValueError) as error:
        print(error)
"""

SERVER = """
with Server("memory://") as server:
    print(server.address, flush=True)
    sys.stdin.readline()
"""

NOWHERE = "ucx://127.0.0.1:1"


def says_what_and_what_to_do(said: str) -> bool:
    return all(
        part in said
        for part in ("SO_ATTACH_FILTER", "TCP_MD5SIG_EXT", "UCXSTORE_GATE=off", "docs/security.md")
    )


@pytest.mark.parametrize("first", ["", OFF], ids=["on", "off"])
def test_a_client_that_may_not_fence(first: str) -> None:
    with (
        Server("memory://") as server,
        Script(NOWHERE, {}, first + REFUSE + CLIENT.format(address=server.address)) as script,
    ):
        said = script.end()
        if first == OFF:
            assert said == "True\n"
        else:
            assert says_what_and_what_to_do(said), said
            assert server.sessions == 0


@pytest.mark.parametrize("first", ["", OFF], ids=["on", "off"])
def test_a_server_that_may_not_fence(first: str) -> None:
    with Script(NOWHERE, {}, first + REFUSE + SERVER) as script:
        address = script.line()
        with UcxStore(address, local="auto") as store:  # without UCX
            assert store.get_sync("key") is None
        with UcxStore(address, local="ucx") as store:
            if first == OFF:
                assert store.get_sync("key") is None
            else:
                with pytest.raises(ConnectError) as caught:
                    store.get_sync("key")
                assert says_what_and_what_to_do(str(caught.value)), caught.value
        assert script.end() == ""


def test_no_other_word_turns_the_gate_off() -> None:
    code = "os.environ['UCXSTORE_GATE'] = 'no'\n"
    with (
        Server("memory://") as server,
        Script(NOWHERE, {}, code + CLIENT.format(address=server.address)) as script,
    ):
        assert "UCXSTORE_GATE is 'no'" in script.end()
