"""`Secret`: the shared secret of servers and clients, not shown when printed or pickled."""

import hmac
import os
from pathlib import Path
from typing import Self

from ucxstore.errors import AuthenticationError

ENVIRONMENT_SECRET = "UCXSTORE_SECRET"
ENVIRONMENT_FILE = "UCXSTORE_SECRET_FILE"

# A secret is a line, not a document, and fits into a pipe in one write.
MAX_SECRET_BYTES = 4096


class Secret:
    """A shared secret, which neither ``repr`` nor a pickle shows.

    Pickled, it keeps where it came from: the environment variable or the file that it was loaded
    from, or else only that there is one. The unpickling process looks there, then in the variable
    ``UCXSTORE_SECRET``, then in the file that ``UCXSTORE_SECRET_FILE`` names, but only once the
    secret is used.

    Parameters
    ----------
    text : str or bytes
        The secret; white space around it is not part of it, so that a file may end in a newline.
        Make it long and random: whoever records a handshake can try guesses offline.
    pickle_text : bool
        Put the text itself into pickles, where anybody who gets them can read it.

    Raises
    ------
    ValueError
        If the secret is empty or longer than `MAX_SECRET_BYTES`.
    TypeError
        If it is neither text nor bytes.
    """

    __slots__ = ("_file", "_pickle_text", "_text", "_variable")

    _text: bytes | None
    _variable: str | None
    _file: str | None
    _pickle_text: bool

    def __init__(self, text: str | bytes, *, pickle_text: bool = False) -> None:
        if not isinstance(text, str | bytes):
            raise TypeError(f"secret: text or bytes are needed, not a {type(text).__name__}")
        self._text = _clean(text, "secret")
        self._variable = None
        self._file = None
        self._pickle_text = pickle_text

    @classmethod
    def from_env(cls, variable: str = ENVIRONMENT_SECRET) -> Self:
        """Take the secret from an environment variable."""
        secret = cls._located(variable, None)
        secret._text = _read_variable(variable)
        return secret

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Self:
        """Take the secret from a file; raise ``OSError`` if it cannot be read."""
        file = str(Path(path).absolute())  # for a process that unpickles it in another folder
        secret = cls._located(None, file)
        secret._text = _read_file(file)
        return secret

    @classmethod
    def of(cls, secret: "str | bytes | Secret | None") -> "Secret | None":
        """Return what a user gave as a `Secret`; ``None`` stays ``None``."""
        if secret is None or isinstance(secret, Secret):
            return secret
        return cls(secret)

    @classmethod
    def find(cls) -> "Secret | None":
        """Take the secret that ``UCXSTORE_SECRET`` or ``UCXSTORE_SECRET_FILE`` gives, if any.

        Raises
        ------
        OSError, ValueError
            If the file cannot be read, or the secret is empty or too long.
        """
        if ENVIRONMENT_SECRET in os.environ:
            return cls.from_env()
        file = os.environ.get(ENVIRONMENT_FILE)
        return None if file is None else cls.from_file(file)

    @classmethod
    def _located(cls, variable: str | None, file: str | None) -> Self:
        """Make a secret of which only the variable or file is known."""
        secret = cls.__new__(cls)
        secret._text = None
        secret._variable = variable
        secret._file = file
        secret._pickle_text = False
        return secret

    def reveal(self) -> bytes:
        """Return the secret itself.

        Raises
        ------
        AuthenticationError
            If the secret was pickled without its text, and is not found in this process.
        """
        text, problems = self._find()
        if text is None:
            raise AuthenticationError(
                "the secret was pickled without its text, and is not found in this process: "
                f"{'; '.join(problems)}; set {ENVIRONMENT_SECRET} or {ENVIRONMENT_FILE} here"
            )
        return text

    def keep(self, connector: object) -> None:
        """Take a connector that uses this secret; a subclass may keep its connection open."""

    def _find(self) -> tuple[bytes | None, list[str]]:
        """Return the text, or ``None`` and why each variable or file does not have it."""
        problems: list[str] = []
        if self._text is None:
            places = (
                (_read_variable, self._variable),
                (_read_file, self._file),
                (_read_variable, ENVIRONMENT_SECRET),
                (_read_file, os.environ.get(ENVIRONMENT_FILE)),
            )
            for read, place in dict.fromkeys(places):
                if place is None:
                    continue
                try:
                    self._text = read(place)
                    break
                except (OSError, ValueError) as error:
                    problems.append(str(error))
        return self._text, problems

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        mine, theirs = self._find()[0], other._find()[0]
        if mine is not None and theirs is not None:
            return hmac.compare_digest(mine, theirs)
        return mine is theirs and (self._variable, self._file) == (other._variable, other._file)

    def __hash__(self) -> int:
        # Equal secrets have equal hashes, and a hash of the text would reveal something of it.
        return hash(Secret)

    def __repr__(self) -> str:
        if self._variable is not None:
            return f"Secret(from ${self._variable})"
        if self._file is not None:
            return f"Secret(from {self._file!r})"
        return "Secret(***)"

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self  # not by __reduce__, which leaves out the text

    def __reduce__(self) -> tuple[object, ...]:
        if self._pickle_text:
            return _unpickle_text, (self._text,)
        return _unpickle_place, (self._variable, self._file)


def _unpickle_text(text: bytes) -> Secret:
    return Secret(text, pickle_text=True)


def _unpickle_place(variable: str | None, file: str | None) -> Secret:
    return Secret._located(variable, file)


def _read_variable(name: str) -> bytes:
    text = os.environb.get(os.fsencode(name))
    if text is None:
        raise ValueError(f"secret: the environment variable {name} is not set")
    return _clean(text, f"secret: the environment variable {name}")


def _read_file(path: str) -> bytes:
    with Path(path).open("rb") as file:  # bounded: the path may name a device or a log by mistake
        return _clean(file.read(2 * MAX_SECRET_BYTES), f"secret: file {path!r}")


def _clean(text: str | bytes, what: str) -> bytes:
    clean = (text.encode() if isinstance(text, str) else bytes(text)).strip()
    if not clean:
        raise ValueError(f"{what} is empty")
    if len(clean) > MAX_SECRET_BYTES:
        raise ValueError(f"{what} is longer than {MAX_SECRET_BYTES} bytes")
    return clean
