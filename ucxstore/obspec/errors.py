"""Failures by the names that obspec has for them: it knows an exception by its name."""

from collections.abc import Iterator
from contextlib import contextmanager

from ucxstore.base.errors import (
    AuthenticationError,
    GrantError,
    InvalidKeyError,
    ReadOnlyServerError,
    UcxStoreError,
)


class NotFoundError(UcxStoreError, FileNotFoundError):
    """No value is under the key."""


class AlreadyExistsError(UcxStoreError, FileExistsError):
    """A value is under the key already."""


class PreconditionError(UcxStoreError):
    """The value has another version than it must have."""


class NotModifiedError(UcxStoreError):
    """The value still has the version that it must not have."""


class NotSupportedError(UcxStoreError, NotImplementedError):
    """Servers do not have what was asked for: attributes, tags, times, conditional updates."""


class InvalidPathError(InvalidKeyError):
    """A key that no server accepts."""


class PermissionDeniedError(UcxStoreError, PermissionError):
    """The store, the server or the grant is read-only, or the grant does not open the key."""


class UnauthenticatedError(AuthenticationError):
    """The secret is wrong or missing."""


@contextmanager
def named(path: str = "") -> Iterator[None]:
    """Raise failures by the names that obspec has for them."""
    try:
        yield
    except InvalidKeyError as error:
        raise InvalidPathError(str(error)) from error
    except (GrantError, ReadOnlyServerError) as error:
        raise PermissionDeniedError(str(error)) from error
    except AuthenticationError as error:
        raise UnauthenticatedError(str(error)) from error
    except BaseExceptionGroup as group:
        if group.subgroup(FileNotFoundError) is None:
            raise
        raise NotFoundError(f"there is no value under {path!r}") from group
