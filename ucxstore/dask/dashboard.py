"""A page of the Dask dashboard: what the servers in the workers hold and move."""

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from html import escape
from typing import TYPE_CHECKING, Any

from distributed.diagnostics.plugin import SchedulerPlugin
from tornado.web import RequestHandler

from ucxstore.base.showing import html_table, printable, size_text
from ucxstore.dask.figures import DeploymentStats, WorkerStats

if TYPE_CHECKING:
    from distributed import Scheduler

# The worker's metric that has, for each deployment by its name, what `figures_of` returns.
METRIC = "ucxstore"

PATH = "/ucxstore"

# Workers tell the scheduler twice a second at most.
_REFRESH_SECONDS = 2

_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>ucxstore</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="refresh" content="{refresh}">
<style>:root {{ color-scheme: light dark }}
body {{ font: 15px/1.4 system-ui, sans-serif; margin: 1.5em; overflow-wrap: anywhere }}
div {{ overflow-x: auto }} td, th {{ white-space: nowrap }}</style></head><body>
<h1>ucxstore</h1>{body}
<p><a href="status">Dask's dashboard</a> &middot; <a href="ucxstore.json">as JSON</a></p>
</body></html>
"""


class DashboardPlugin(SchedulerPlugin):
    """A scheduler plugin that adds the page ``/ucxstore`` to the dashboard, and its JSON."""

    name = "ucxstore-dashboard"
    idempotent = True

    async def start(self, scheduler: "Scheduler") -> None:
        application = getattr(scheduler, "http_application", None)
        if application is None or getattr(application, "has_ucxstore", False):
            return
        application.has_ucxstore = True
        given = {"scheduler": scheduler}
        application.add_handlers(
            ".*$",
            [
                (rf".*{PATH}", _PageHandler, given),
                (rf".*{PATH}\.json", _JsonHandler, given),
            ],
        )
        _link(scheduler)


def _link(scheduler: "Scheduler") -> None:
    """Name the page in the dashboard's bar of pages, which there is where bokeh is installed."""
    with suppress(ImportError, AttributeError, KeyError):
        from distributed.dashboard.scheduler import template_variables

        pages = template_variables(scheduler)["pages"]  # the same list each time
        if PATH[1:] not in pages:
            pages.append(PATH[1:])


class _DashboardHandler(RequestHandler):
    def initialize(self, scheduler: "Scheduler") -> None:
        self._scheduler = scheduler

    def set_default_headers(self) -> None:
        self.set_header("Cache-Control", "no-store")
        self.set_header("X-Content-Type-Options", "nosniff")
        policy = (
            "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
        )
        self.set_header("Content-Security-Policy", policy)

    def stats(self) -> dict[str, DeploymentStats]:
        """Return the counters of each deployment, as the workers have last told them."""
        workers = self._scheduler.workers
        return stats_of({address: ws.metrics for address, ws in list(workers.items())})

    def data_received(self, chunk: bytes) -> None:
        """Do nothing: requests have no body."""


class _JsonHandler(_DashboardHandler):
    def get(self) -> None:
        self.set_header("Content-Type", "application/json")
        self.finish(json.dumps(self.stats()))


class _PageHandler(_DashboardHandler):
    def get(self) -> None:
        self.finish(page(self.stats()))


def stats_of(metrics: Mapping[str, Mapping[str, Any]]) -> dict[str, DeploymentStats]:
    """Return the counters of each deployment, given the metrics of each worker."""
    found: dict[str, dict[str, WorkerStats]] = {}
    for worker, of_worker in metrics.items():
        for name, figures in of_worker.get(METRIC, {}).items():
            found.setdefault(str(name), {})[worker] = WorkerStats.of(figures)
    return {name: DeploymentStats.of(workers) for name, workers in sorted(found.items())}


def page(stats: Mapping[str, DeploymentStats]) -> str:
    """Return the page, in which all that comes from others is escaped."""
    parts = [part for name, one in stats.items() for part in _sections(name, one)]
    body = "".join(parts) or "<p>No worker has a server now.</p>"
    return _PAGE.format(refresh=_REFRESH_SECONDS, body=body)


def _sections(name: str, stats: DeploymentStats) -> Iterator[str]:
    yield f"<h2>{escape(printable(name))}</h2>"
    workers = stats.workers
    everybody: list[tuple[str, WorkerStats | DeploymentStats]] = [*workers.items(), ("all", stats)]
    lanes = list(stats.lane_bytes)
    servers = [*(one.server for one in workers.values()), f"{stats.servers} servers"]
    rows = [
        (
            worker,
            server,
            size_text(one.memory_bytes),
            size_text(one.memory_limit_bytes),
            str(one.connected),
            f"{one.gets + one.gets_seen:,}",
            f"{one.sets:,}",
        )
        for (worker, one), server in zip(everybody, servers, strict=True)
    ]
    header = ("worker", "server", "memory", "limit", "clients", "gets", "sets")
    yield f"<h3>Servers</h3><div>{html_table(rows, header, right=range(2, 7))}</div>"
    by_lane = [
        (worker, *(size_text(one.lane_bytes.get(lane, 0)) for lane in lanes))
        for worker, one in everybody
    ]
    table = html_table(by_lane, ("worker", *lanes), right=range(1, len(lanes) + 1))
    yield f"<h3>Bytes by lane</h3><div>{table}</div>"
    ways = ("direct", "decode", "encode", "fallback", "mapped")
    by_way = [
        (
            worker,
            *(f"{one[way]:,}" for way in ways),
            size_text(one["bytes_read"]),
            size_text(one["bytes_written"]),
        )
        for worker, one in everybody
    ]
    table = html_table(by_way, ("worker", *ways, "read", "written"), right=range(1, 8))
    yield f"<h3>Ways of chunks, in the tasks of each worker</h3><div>{table}</div>"
