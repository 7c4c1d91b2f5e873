"""Delay the answers of a server on loopback, with toxiproxy, which `make s3` builds."""

import json
import os
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from profiles.loopback import HOST, free_port, listening

_BUILT = Path("build/s3/toxiproxy")


@contextmanager
def delayed(endpoint: str, milliseconds: int, folder: Path) -> Iterator[str]:
    """Yield an endpoint that forwards to another one and delays every answer."""
    if not _BUILT.exists():
        raise FileNotFoundError(f"there is no {_BUILT}: `make s3` builds it, where there is Go")
    port, proxied = free_port(), free_port()
    command = [str(_BUILT.absolute()), "-host", HOST, "-port", str(port)]
    with listening(command, os.environ, port, folder / "toxiproxy.log"):
        api = f"http://{HOST}:{port}/proxies"
        upstream = urlsplit(endpoint).netloc
        _post(api, {"name": "far", "listen": f"{HOST}:{proxied}", "upstream": upstream})
        # Delay only answers: a request is a packet or two.
        latency = {"type": "latency", "attributes": {"latency": milliseconds}}
        _post(f"{api}/far/toxics", {**latency, "stream": "downstream"})
        yield f"http://{HOST}:{proxied}"


def _post(url: str, values: object) -> None:
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, json.dumps(values).encode(), headers)
    with urllib.request.urlopen(request, timeout=10):
        pass
