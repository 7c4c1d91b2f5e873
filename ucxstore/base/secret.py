"""`Secret`: the secret of servers and clients, or a grant of it; shown and pickled nowhere."""

import hmac
import os
import shlex
import stat
from pathlib import Path
from typing import Self

from ucxstore.base import grants
from ucxstore.base.errors import AuthenticationError

ENVIRONMENT_SECRET = "UCXSTORE_SECRET"
ENVIRONMENT_FILE = "UCXSTORE_SECRET_FILE"

# A secret is a line, not a document, and fits into a pipe in one write.
MAX_SECRET_BYTES = 4096


class Secret:
    """A shared secret, which neither ``repr`` nor a pickle shows.

    `grant` makes a secret of it that opens a part of what it opens itself. Such a grant is used
    wherever a client's secret is.

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

    __slots__ = ("_caveats", "_file", "_pickle_text", "_text", "_variable")

    _text: bytes | None
    _variable: str | None
    _file: str | None
    _pickle_text: bool
    _caveats: bytes  # of a grant made here; a variable or file may have what it was made of

    def __init__(self, text: str | bytes, *, pickle_text: bool = False) -> None:
        if not isinstance(text, str | bytes):
            raise TypeError(f"secret: text or bytes are needed, not a {type(text).__name__}")
        self._text = _clean(text, "secret")
        self._variable = None
        self._file = None
        self._pickle_text = pickle_text
        self._caveats = b""

    @classmethod
    def from_env(cls, variable: str = ENVIRONMENT_SECRET) -> Self:
        """Take the secret from an environment variable."""
        secret = cls._located(variable, None)
        secret._text = _read_variable(variable)
        return secret

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Self:
        """Take the secret from a file.

        Raises
        ------
        OSError, ValueError
            If the file cannot be read, or is empty or too long; ``PermissionError`` if it is this
            user's, and others can read or write it. As with ssh's keys, files of other users (root,
            say) are taken as they are, and so are those on read-only mounts.
        """
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

        An empty variable gives none.

        Raises
        ------
        OSError, ValueError
            If the file cannot be read, or the secret is empty or too long.
        """
        if os.environ.get(ENVIRONMENT_SECRET):
            return cls.from_env()
        file = os.environ.get(ENVIRONMENT_FILE)
        return cls.from_file(file) if file else None

    @classmethod
    def _located(cls, variable: str | None, file: str | None) -> Self:
        """Make a secret of which only the variable or file is known."""
        secret = cls.__new__(cls)
        secret._text = None
        secret._variable = variable
        secret._file = file
        secret._pickle_text = False
        secret._caveats = b""
        return secret

    def grant(
        self,
        prefix: str | None,
        *,
        read_only: bool = False,
        expires: "grants.Expiry | None" = None,
        operator: bool = False,
        pickle_text: bool = False,
    ) -> "Secret":
        """Derive a secret that opens a part of what this one opens.

        Servers need not be told of it: they check it with the secret. Whoever has it can narrow it
        further, by `grant`, and nobody can make the secret of it. It cannot be withdrawn but by
        another secret at the servers, so let it expire.

        Parameters
        ----------
        prefix : str or None
            The folder that it opens, relative to what this secret opens: of the grant of ``"a/"``,
            that of ``"b/"`` opens ``"a/b/"``. ``None`` for all that this secret opens.
        read_only : bool
            Whether it opens that for reading alone.
        expires : str, float, timedelta, datetime or None
            How long it holds, such as ``"8h"``, ``"30m"``, ``"7d"`` or a number of seconds, or
            until when. Servers go by their own clocks.
        operator : bool
            Whether it is for an operator: to list and end sessions, to flush the cache and to
            change the log's level (``ucxstore sessions``, ``kick``, ``flush``, ``log-level``). It
            opens no values. Only the secret itself makes one, without a prefix and `read_only`.
        pickle_text : bool
            As for the constructor. Without it, a process that unpickles the grant looks for what it
            was made from, where a `Secret` looks, and narrows that again.

        Returns
        -------
        Secret

        Raises
        ------
        ValueError, TypeError
            If the prefix is no folder, or the time none to come, or nothing is narrowed, or these
            do not go together.
        AuthenticationError
            As `reveal`.
        """
        caveats = grants.caveats_of(prefix, read_only=read_only, expires=expires, operator=operator)
        granted = Secret._located(self._variable, self._file)
        granted._text = grants.narrow(self.reveal(), caveats)
        granted._caveats = grants.credentials_of(granted._text).caveats
        granted._pickle_text = pickle_text or self._pickle_text
        return granted

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
                (_read_file, os.environ.get(ENVIRONMENT_FILE) or None),
            )
            for read, place in dict.fromkeys(places):
                if place is None:
                    continue
                try:
                    found = read(place)
                    self._text = self._made_of(found, place) if self._caveats else found
                    break
                except (OSError, ValueError) as error:
                    problems.append(str(error))
        return self._text, problems

    def _made_of(self, text: bytes, place: str) -> bytes:
        try:
            return grants.continue_to(text, self._caveats)
        except ValueError as error:
            raise ValueError(f"secret: what {place} has {error}") from None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        mine, theirs = self._find()[0], other._find()[0]
        if mine is not None and theirs is not None:
            return hmac.compare_digest(mine, theirs)
        return mine is theirs and self._origin == other._origin

    def __hash__(self) -> int:
        # Equal secrets have equal hashes, and a hash of the text would reveal something of it.
        return hash(Secret)

    @property
    def _origin(self) -> tuple[str | None, str | None, bytes]:
        return self._variable, self._file, self._caveats

    def __repr__(self) -> str:
        parts = ["***"]
        if self._variable is not None:
            parts = [f"from ${self._variable}"]
        elif self._file is not None:
            parts = [f"from {self._file!r}"]
        caveats = self._caveats
        if self._text is not None:
            caveats = grants.credentials_of(self._text).caveats
        if caveats:
            parts.append(f"opens {grants.describe(caveats)}")
        return f"Secret({', '.join(parts)})"

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self  # not by __reduce__, which leaves out the text

    def __reduce__(self) -> tuple[object, ...]:
        if self._pickle_text:
            return _unpickle_text, (self._text,)
        return _unpickle_place, self._origin


def _unpickle_text(text: bytes) -> Secret:
    return Secret(text, pickle_text=True)


def _unpickle_place(variable: str | None, file: str | None, caveats: bytes = b"") -> Secret:
    secret = Secret._located(variable, file)
    secret._caveats = caveats
    return secret


def _read_variable(name: str) -> bytes:
    text = os.environb.get(os.fsencode(name))
    if text is None:
        raise ValueError(f"secret: the environment variable {name} is not set")
    return _clean(text, f"secret: the environment variable {name}")


def _read_file(path: str) -> bytes:
    with Path(path).open("rb") as file:  # bounded: the path may name a device or a log by mistake
        _check_private(file.fileno(), path)
        return _clean(file.read(2 * MAX_SECRET_BYTES), f"secret: file {path!r}")


def _check_private(descriptor: int, path: str) -> None:
    """Raise ``PermissionError`` if others can use a file of this user, as ssh does with its keys.

    Who may read another user's file, that one decides. On a read-only mount, as orchestrators
    provide secrets, nobody can change the mode.
    """
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
        return
    mode = stat.S_IMODE(status.st_mode)
    if mode & 0o077 and not os.fstatvfs(descriptor).f_flag & os.ST_RDONLY:
        raise PermissionError(
            f"secret: file {path!r} is open to other users (mode {mode:04o}): "
            f"chmod 600 {shlex.quote(path)}"
        )


def _clean(text: str | bytes, what: str) -> bytes:
    clean = (text.encode() if isinstance(text, str) else bytes(text)).strip()
    if not clean:
        raise ValueError(f"{what} is empty")
    if len(clean) > MAX_SECRET_BYTES:
        raise ValueError(f"{what} is longer than {MAX_SECRET_BYTES} bytes")
    try:
        grants.credentials_of(clean)
    except ValueError as error:
        raise ValueError(f"{what} {error}") from None
    return clean
