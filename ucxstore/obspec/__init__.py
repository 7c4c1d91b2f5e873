"""`ObspecStore`: a store by obspec's protocols, for VirtualiZarr and whoever else asks by them.

zarr's `Store` and obspec use the same names for other methods (`get`, `list`), so this is a class
of its own. It needs no package: obspec's protocols are matched by their names, and so are
exceptions.
"""

from ucxstore.obspec.errors import (
    AlreadyExistsError,
    InvalidPathError,
    NotFoundError,
    NotModifiedError,
    NotSupportedError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from ucxstore.obspec.results import GetResult, GetResultAsync, ListResult, ObjectMeta, PutResult
from ucxstore.obspec.store import ObspecStore

__all__ = [
    "AlreadyExistsError",
    "GetResult",
    "GetResultAsync",
    "InvalidPathError",
    "ListResult",
    "NotFoundError",
    "NotModifiedError",
    "NotSupportedError",
    "ObjectMeta",
    "ObspecStore",
    "PermissionDeniedError",
    "PreconditionError",
    "PutResult",
    "UnauthenticatedError",
]
