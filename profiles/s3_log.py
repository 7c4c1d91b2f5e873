"""The requests that an S3 server has logged."""

import re
from dataclasses import dataclass
from urllib.parse import unquote

from profiles.s3 import S3Server, S3ServerError

# versitygw's, in the form of S3's own: owner, bucket, [time], address, requester, id, operation,
# the key as it is, which may have spaces, and the path that was asked for.
_ACCESS = re.compile(
    r"\S+ (?P<bucket>\S+) \[[^]]*\] \S+ \S+ \S+ s3_(?P<operation>\S+) .* "
    r"/(?P=bucket)/(?P<key>[^ ?]+)"
)

# moto's: a web server's, in colours.
_WEB = re.compile(
    r'"(?:\x1b\[[\d;]*m)*(?P<method>[A-Z]+) /(?P<bucket>[^/ ?]+)/(?P<key>[^ ?]+)\S* HTTP/'
)
_OPERATIONS = {"GET": "GetObject", "HEAD": "HeadObject", "PUT": "PutObject"}


@dataclass(frozen=True, slots=True)
class S3Request:
    """A request about an object, in S3's terms: ``S3Request("GetObject", "run/zarr.json")``."""

    operation: str
    key: str


def read_log(server: S3Server) -> list[S3Request]:
    """Return the requests about objects in the server's bucket, in the log's order.

    Raises
    ------
    S3ServerError
        If its log is not ours to read.
    """
    if server.log is None:
        raise S3ServerError(f"there is no log of the S3 server {server.description}")
    found = []
    for line in server.log.read_text().splitlines():
        if access := _ACCESS.match(line):
            operation = access["operation"]
        elif access := _WEB.search(line):
            operation = _OPERATIONS.get(access["method"], "")
        if access and access["bucket"] == server.bucket and operation.endswith("Object"):
            found.append(S3Request(operation, unquote(access["key"])))
    return found
