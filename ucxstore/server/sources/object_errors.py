"""Explain an object store's error in one line; obstore's own messages take many."""

import re

from obstore import exceptions

_KINDS: tuple[tuple[type[BaseException], str], ...] = (
    (exceptions.PermissionDeniedError, "permission denied"),
    (exceptions.UnauthenticatedError, "the credentials are not accepted"),
    (exceptions.PreconditionError, "it was changed meanwhile"),
    (exceptions.NotSupportedError, "not supported"),
    (exceptions.AlreadyExistsError, "there is one already"),
    (FileNotFoundError, "not found"),
)

_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>([^<]+)</Code>")
_MESSAGE = re.compile(r"<Message>([^<]+)</Message>")
_SYSTEM = re.compile(r"\bkind: (ConnectionRefused|ConnectionReset|ConnectionAborted|BrokenPipe)\b")
_SYSTEM_TEXTS = {
    "ConnectionRefused": "connection refused",
    "ConnectionReset": "connection reset",
    "ConnectionAborted": "connection aborted",
    "BrokenPipe": "connection lost",
}

_UNREACHABLE = re.compile(r"\bkind: (Connect|Timeout|BrokenPipe)|TimedOut")

# Of requests for which obstore has no kind of its own, such as listings.
_STATUSES = {
    "401": "the credentials are not accepted",
    "403": "permission denied",
    "429": "throttled",
    "503": "throttled",
}
_NEVER = {"400", "401", "403", "404", "405", "501"}

# In front of a store that has not answered them.
_GATEWAYS = {"502", "504"}

# A request to a missing container fails like one for a missing object; only this text differs.
_NO_CONTAINER = re.compile(r"NoSuchBucket|ContainerNotFound|bucket does not exist", re.IGNORECASE)

# The status of HTTP, and the error of the stores in obstore itself.
_NO_PART = re.compile(r"status code: 416|StartTooLarge")

_MOST_CHARACTERS = 400


def no_container(error: BaseException) -> bool:
    """Tell whether the bucket or container is missing, not only the object."""
    return _NO_CONTAINER.search(str(error)) is not None


def no_such_part(error: BaseException) -> bool:
    """Tell whether the requested part begins behind the end of the value."""
    return _NO_PART.search(str(error)) is not None


def may_have_succeeded(error: BaseException) -> bool:
    """Tell whether a request that failed like this may have been carried out."""
    if any(isinstance(error, kind) for kind, _ in _KINDS):
        return False
    text, _, debug = str(error).partition("\n\nDebug source:")
    status = _status(text)
    return status.startswith("5") if status else "kind: Connect" not in debug


def has_ended(error: BaseException) -> bool:
    """Tell whether the store itself has answered, so that it does no more for the request."""
    return _status(str(error)) not in {"", *_GATEWAYS}


def may_pass(error: BaseException) -> bool:
    """Tell whether the same request may succeed if it is sent again."""
    if any(isinstance(error, kind) for kind, _ in _KINDS):
        return False
    status = _status(str(error))
    return status.startswith("5") or status in {"", "408", "409", "429"}


def is_unreachable(error: BaseException) -> bool:
    """Tell whether nobody has answered a request."""
    text, _, debug = str(error).partition("\n\nDebug source:")
    return not _status(text) and _UNREACHABLE.search(debug) is not None


def is_unsupported(error: BaseException) -> bool:
    """Tell whether the store says that it does not support such a request."""
    return isinstance(error, exceptions.NotSupportedError) or _status(str(error)) == "501"


def refuses(error: BaseException) -> bool:
    """Tell whether a server of HTTP has refused a request that it never carries out."""
    return isinstance(error, NotImplementedError) or _status(str(error)) in _NEVER


def explain(error: BaseException) -> str:
    """Return the kind of an obstore error and the object store's message, in one line."""
    text, _, debug = str(error).partition("\n\nDebug source:")
    return f"{_kind(error, text, debug)}: {_short(text)}"


def _kind(error: BaseException, text: str, debug: str) -> str:
    if no_container(error):
        return "there is no such bucket"
    for kind, name in _KINDS:
        if isinstance(error, kind):
            return name
    if (system := _SYSTEM.search(debug)) is not None:
        return _SYSTEM_TEXTS[system[1]]
    if "kind: Timeout" in debug or "TimedOut" in debug:
        return "timed out"
    if "kind: Connect" in debug:
        return "cannot connect"
    if status := _status(text):
        return _STATUSES.get(status, f"status {status}")
    return "failed"


def _status(text: str) -> str:
    """Return the status of HTTP that a message has; "" for none."""
    found = _STATUS.search(text)
    return "" if found is None else found[1]


def _short(text: str) -> str:
    """Return the code and the message of an answer in XML, or else the text, in one line."""
    if (code := _CODE.search(text)) is not None:
        message = _MESSAGE.search(text)
        text = code[1] if message is None else f"{code[1]}: {message[1]}"
    text = " ".join(text.split())
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}..."
