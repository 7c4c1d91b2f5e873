"""Azurite, the emulator of Azure's blobs that ``make azure`` installs."""

import base64
import hashlib
import hmac
import http.client
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

from profiles.loopback import HOST, free_port, listening

PROGRAM = Path("build/azure/node_modules/.bin/azurite-blob")

# Azurite's own account, which is no secret.
_ACCOUNT = "devstoreaccount1"
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


class AzureServer:
    """Blobs in the memory of a process of its own; there is a container.

    Attributes
    ----------
    container : str
        Its name.
    """

    container = "container"

    def __init__(self, port: int) -> None:
        self._port = port

    def options(self, **changes: str) -> dict[str, str]:
        """Return how obstore opens it."""
        return {
            "endpoint": f"http://{HOST}:{self._port}/{_ACCOUNT}",
            "account_name": _ACCOUNT,
            "account_key": _KEY,
            **changes,
        }

    def make_container(self) -> None:
        """Make it, as obstore does not: signed as Azure's documentation of shared keys has it."""
        path = f"/{_ACCOUNT}/{self.container}"
        headers = {
            "x-ms-date": datetime.now(UTC).strftime("%a, %d %b %Y %H:%M:%S GMT"),
            "x-ms-version": "2021-08-06",
        }
        signed = "".join(f"{name}:{value}\n" for name, value in headers.items())
        text = "PUT" + 12 * "\n" + signed + f"/{_ACCOUNT}{path}\nrestype:container"
        digest = hmac.digest(base64.b64decode(_KEY), text.encode(), hashlib.sha256)
        signature = base64.b64encode(digest).decode()
        headers["Authorization"] = f"SharedKey {_ACCOUNT}:{signature}"
        with closing(http.client.HTTPConnection(HOST, self._port, timeout=20)) as connection:
            connection.request("PUT", f"{path}?restype=container", headers=headers)
            response = connection.getresponse()
            assert response.status == 201, response.read()


@contextmanager
def azure_server(folder: Path) -> Iterator[AzureServer]:
    """Run it for as long as the block does."""
    port = free_port()
    command = [
        *(str(PROGRAM.absolute()), "--blobHost", HOST, "--blobPort", str(port), "--silent"),
        *("--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry"),
    ]
    with listening(command, dict(os.environ), port, folder / "azurite.log"):
        server = AzureServer(port)
        server.make_container()
        yield server
