"""A server's metrics for Prometheus, and its health, over HTTP."""

import os
import platform
from collections.abc import Iterable, Iterator
from http import HTTPStatus
from importlib import metadata
from typing import TYPE_CHECKING, Self

from ucxstore.base import ucx_library
from ucxstore.base.address import HostPort
from ucxstore.base.stats import figures
from ucxstore.server import Server
from ucxstore.server.accepting.listen import is_loopback, listen_at, resolve
from ucxstore.server.options.server_options import parse_bind
from ucxstore.server.process.web import Web, WebPage, parse_networks

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric

# By the names in Server.disk_space().
_DISK = {
    "free": ("disk_free_bytes", "Bytes that are free on the disk of the directory or the cache."),
    "size": ("disk_size_bytes", "Bytes that this disk has."),
}
# Seconds at which the first bucket of Server.latencies() ends, each of the next at twice that.
_FIRST_BUCKET = 1e-5

_NEEDS_CLIENT = "metrics: prometheus-client is needed: pip install 'ucxstore[tools]'"


class Metrics:
    """An HTTP server: ``/metrics`` for Prometheus, ``/healthz`` and ``/readyz``.

    A context manager; leaving it closes the server. It needs prometheus-client.

    Parameters
    ----------
    server : Server
    bind : str
        ``host:port``; port 0 takes any free one.
    anywhere : bool
        Whether addresses other than loopback are allowed without `allow`. Anybody who can connect
        can read then.
    allow : iterable of str
        Networks that are answered beside this machine, such as ``"10.0.0.0/8"``; others get 403.

    Raises
    ------
    ValueError
        If `bind` is not ``host:port``, or is not loopback and that is not allowed, or a network is
        none, or prometheus-client is not installed.
    OSError
        If the address is not one of this machine, or is in use.
    """

    def __init__(
        self, server: Server, bind: str, *, anywhere: bool, allow: Iterable[str] = ()
    ) -> None:
        at = parse_bind("metrics", bind)
        networks = parse_networks("metrics_allow", allow)
        family, host = resolve(at)
        if not (anywhere or networks or is_loopback(host)):
            raise ValueError(
                f"metrics: {bind} can be reached from other machines; say which may read "
                "(--metrics-allow 10.0.0.0/8), or set insecure (--insecure) to let them all"
            )
        self._server = server
        self._registry = _registry(server)
        pages = {"/metrics": self._metrics, "/healthz": self._health, "/readyz": self._ready}
        try:
            listener = listen_at(family, host, at.port)
        except OSError as error:
            why = os.strerror(error.errno or 0)
            raise OSError(error.errno, f"metrics: {bind}: {why}") from error
        self._web = Web(listener, pages, networks or None)
        self.url = f"http://{HostPort(host, self._web.port)}/metrics"

    def close(self) -> None:
        """Stop the HTTP server. Nobody waits for the answers of requests under way."""
        self._web.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _metrics(self, accept: str) -> WebPage:
        from prometheus_client.exposition import choose_encoder

        encode, kind = choose_encoder(accept)
        return WebPage(encode(self._registry), kind)

    def _health(self, _: str) -> WebPage:
        return _verdict(self._server.dead())

    def _ready(self, _: str) -> WebPage:
        return _verdict(self._server.unready())


def _verdict(trouble: str) -> WebPage:
    status = HTTPStatus.SERVICE_UNAVAILABLE if trouble else HTTPStatus.OK
    return WebPage(f"{trouble or 'ok'}\n", status=status)


def _registry(server: Server) -> "CollectorRegistry":
    try:
        from prometheus_client import CollectorRegistry, ProcessCollector
    except ImportError as error:
        raise ValueError(_NEEDS_CLIENT) from error
    registry = CollectorRegistry()
    registry.register(_ServerCollector(server))
    ProcessCollector(registry=registry)
    return registry


class _ServerCollector:
    """What Prometheus's registry asks when it is read."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def collect(self) -> "Iterator[Metric]":
        """Read the counters."""
        from prometheus_client.core import (
            CounterMetricFamily,
            GaugeMetricFamily,
            HistogramMetricFamily,
        )

        counted = self._server.stats()
        families = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily}
        for each in figures():
            if each.metric:
                yield families[each.kind](
                    f"ucxstore_{each.metric}", each.text, value=counted[each.name]
                )
        space = self._server.disk_space()
        if space is not None:
            for ours, (name, text) in _DISK.items():
                yield GaugeMetricFamily(f"ucxstore_{name}", text, value=getattr(space, ours))
        failures = CounterMetricFamily(
            "ucxstore_failures", "Requests that were answered with a failure.", labels=["reason"]
        )
        for reason, count in self._server.failures().items():
            failures.add_metric([reason], count)
        yield failures
        latencies = HistogramMetricFamily(
            "ucxstore_request_duration_seconds",
            "Time from when a request has come until its reply has gone.",
            labels=["kind"],
        )
        for kind, (counts, seconds) in self._server.latencies().items():
            latencies.add_metric([kind], _buckets(counts), seconds)
        yield latencies
        build = GaugeMetricFamily(
            "ucxstore_build_info",
            "The version of this server, of UCX once that is loaded, and of Python.",
            labels=["version", "ucx", "python"],
        )
        build.add_metric(
            [metadata.version("ucxstore"), ucx_library.loaded_version(), platform.python_version()],
            1,
        )
        yield build


def _buckets(counts: list[int]) -> list[tuple[str, float]]:
    """Return the upper bounds and the sums up to these, as Prometheus has them."""
    total = 0
    buckets: list[tuple[str, float]] = []
    for number, count in enumerate(counts):
        total += count
        last = number == len(counts) - 1
        buckets.append(("+Inf" if last else f"{_FIRST_BUCKET * 2**number:.6g}", total))
    return buckets
