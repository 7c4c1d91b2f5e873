"""The keys by which a session is encrypted: agreed on by X25519, and drawn by HKDF-SHA256."""

import hashlib
import hmac
from typing import NamedTuple, Protocol, Self

_TO_SERVER = b"ucxstore encryption: client to server"
_TO_CLIENT = b"ucxstore encryption: server to client"


class KeyAgreement(Protocol):
    """A pair of keys of X25519, used once: `ucxstore._core.Agreement`."""

    @property
    def public_key(self) -> bytes:
        """The key that the other side is sent."""

    def secret_with(self, other: bytes) -> bytes:
        """Return the secret that both sides have, who have sent each other their public keys."""


class SessionKeys(NamedTuple):
    """The keys of one side: for AES-256-GCM, one for each direction.

    Parameters
    ----------
    send : bytes
    receive : bytes
    """

    send: bytes
    receive: bytes

    @classmethod
    def of_client(cls, agreed: bytes, secret: bytes, transcript: bytes) -> Self:
        """Draw the client's keys.

        Parameters
        ----------
        agreed : bytes
            What the two sides have agreed on.
        secret : bytes
            The secret, or the key of the client's grant.
        transcript : bytes
            All frames of the handshake so far, with both nonces and both public keys.
        """
        extracted = hmac.digest(hashlib.sha256(transcript).digest(), agreed + secret, "sha256")
        return cls(_expand(extracted, _TO_SERVER), _expand(extracted, _TO_CLIENT))

    @property
    def turned(self) -> "SessionKeys":
        """The keys of the other side."""
        return SessionKeys(self.receive, self.send)


def _expand(extracted: bytes, info: bytes) -> bytes:
    return hmac.digest(extracted, info + b"\1", "sha256")  # RFC 5869, one block of 32 bytes
