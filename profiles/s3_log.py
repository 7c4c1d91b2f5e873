"""Read the requests in the log of an S3 server."""

import re
from dataclasses import dataclass
from urllib.parse import unquote

from profiles.s3 import S3Server, S3ServerError
from ucxstore.base.keys import RESERVED_FOLDER

# versitygw's log has the form of S3's: owner, bucket, [time], address, requester, id, operation,
# the key, which may have spaces, and the requested path.
_ACCESS = re.compile(
    r"\S+ (?P<bucket>\S+) \[[^]]*\] \S+ \S+ \S+ s3_(?P<operation>\S+) .* "
    r"/(?P=bucket)/(?P<key>[^ ?]+)"
)

# moto's log is that of a web server, in colours.
_WEB = re.compile(
    r'"(?:\x1b\[[\d;]*m)*(?P<method>[A-Z]+) /(?P<bucket>[^/ ?]+)/(?P<key>[^ ?]+)\S* HTTP/'
)
_OPERATIONS = {"GET": "GetObject", "HEAD": "HeadObject", "PUT": "PutObject"}


@dataclass(frozen=True, slots=True)
class S3Request:
    """A request for an object, in S3's terms: ``S3Request("GetObject", "run/zarr.json")``."""

    operation: str
    key: str


def read_log(server: S3Server) -> list[S3Request]:
    """Return the requests for objects in the server's bucket, in the order of the log.

    Those by which ucxstore's servers find one another, a few for each server, are left out.

    Raises
    ------
    S3ServerError
        If there is no log to read.
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
            key = unquote(access["key"])
            if f"/{RESERVED_FOLDER}" not in f"/{key}":
                found.append(S3Request(operation, key))
    return found
