"""A server's counters for Prometheus, over HTTP."""

from collections.abc import Iterator
from typing import Self

from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from ucxstore.address import HostPort
from ucxstore.server import Server
from ucxstore.server.listen import is_loopback, resolve
from ucxstore.server.options import parse_bind

# By the names in Server.stats(): the names for Prometheus, and their descriptions.
_COUNTERS = {
    "gets": ("gets", "Values that were requested."),
    "gets_missing": ("gets_missing", "Values that were requested and missing."),
    "sets": ("sets", "Values that were stored."),
    "bytes_sent": ("sent_bytes", "Bytes of replies that were sent."),
    "bytes_received": ("received_bytes", "Bytes of values that were stored."),
    "sessions": ("sessions", "Clients that have connected."),
    "sessions_lost": ("sessions_lost", "Clients that were lost during a request."),
    "sessions_ended": ("sessions_ended", "Clients that were asked to go for others."),
    "messages_refused": ("messages_refused", "Messages that broke the protocol."),
    "turned_away": ("turned_away", "Connections whose handshake failed."),
}


class Metrics:
    """An HTTP server for Prometheus, in a thread. A context manager; leaving it closes the server.

    Parameters
    ----------
    server : Server
    bind : str
        ``host:port``; port 0 takes any free one.
    anywhere : bool
        Whether addresses other than loopback are allowed. Anybody who can connect can read.

    Raises
    ------
    ValueError
        If `bind` is not ``host:port``, or is not loopback and that is not allowed.
    OSError
        If the address is not one of this machine, or is in use.
    """

    def __init__(self, server: Server, bind: str, *, anywhere: bool) -> None:
        at = parse_bind("metrics", bind)
        _, host = resolve(at)
        if not anywhere and not is_loopback(host):
            raise ValueError(
                f"metrics: {bind} can be reached from other machines; set insecure (--insecure) "
                "to let them read"
            )
        registry = CollectorRegistry()
        registry.register(_ServerCollector(server))
        ProcessCollector(registry=registry)
        try:
            self._http, self._thread = start_http_server(at.port, host, registry)
        except OSError as error:
            raise OSError(error.errno, f"metrics: {bind}: {error.strerror}") from error
        self.url = f"http://{HostPort(host, self._http.server_port)}/metrics"

    def close(self) -> None:
        """Stop the HTTP server; a request under way is finished."""
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _ServerCollector(Collector):
    def __init__(self, server: Server) -> None:
        self._server = server

    def collect(self) -> Iterator[Metric]:
        """Read the counters when Prometheus requests them."""
        counted = self._server.stats()
        for ours, (name, help_text) in _COUNTERS.items():
            yield CounterMetricFamily(f"ucxstore_{name}", help_text, value=counted[ours])
        connected = self._server.sessions
        yield GaugeMetricFamily("ucxstore_connected", "Clients that are connected.", connected)
        yield GaugeMetricFamily(
            "ucxstore_scratch_bytes",
            "Bytes of values in scratch spaces.",
            value=counted["scratch_bytes"],
        )
