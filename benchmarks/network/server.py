"""A server of ucxstore or of Arrow Flight: ``python -m benchmarks.network.server TASK``.

It prints its address, and ends with its input.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from benchmarks.network.content import values


def main(task: Mapping[str, Any]) -> None:
    serving = {"ucxstore": _ucxstore, "Flight": _flight}[task["peer"]]
    with serving(task) as address:
        print(json.dumps({"address": address}), flush=True)
        sys.stdin.read()


@contextmanager
def _ucxstore(task: Mapping[str, Any]) -> Iterator[str]:
    from ucxstore import Server

    bind = f"{task['ip']}:0"
    options = {"insecure": "secret" not in task["options"], **task["options"]}
    with Server("memory://", bind, **options) as server:
        yield server.address.removeprefix("ucx://")


@contextmanager
def _flight(task: Mapping[str, Any]) -> Iterator[str]:
    """Serve tables of one column of one value: the bytes."""
    import pyarrow
    from pyarrow import flight

    tables = {
        key: pyarrow.table({"value": pyarrow.array([value], pyarrow.large_binary())})
        for key, value in values(task["sizes"]).items()
    }

    class Tables(flight.FlightServerBase):  # type: ignore[misc]  # it has no types
        def do_get(self, context: Any, ticket: Any) -> Any:
            return flight.RecordBatchStream(tables[ticket.ticket.decode()])

        def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
            tables[descriptor.path[0].decode()] = reader.read_all()

    with Tables(f"grpc://{task['ip']}:0") as server:
        yield f"{task['ip']}:{server.port}"


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
