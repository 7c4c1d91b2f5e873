"""The frames of the handshake: little-endian, a fixed header, then a body of checked length.

A header is the magic ``UCXS``, the sender's protocol version (u16), the kind (u16) and the length
of the body (u32). The header, and the format of `FrameKind.REJECT`, stay the same in every version
of the protocol, so that a client of any version learns why it is refused. The bodies:

=========  =======================================================================
HELLO      nonce[32]
CHALLENGE  flags u32 (1: a secret is required, 2: what goes over a network is encrypted), nonce[32]
PROOF      mac[32], caveats of a grant (`ucxstore.base.grants`)
WELCOME    mac[32], token[16], identity[16], flags u32 (1: read-only,
           2: shared, 4: volatile, 8: UCX's shared memory may be used, 16: the host has RDMA,
           32: UCX is offered, 64: values are decoded), size u16 of the name of a Unix
           socket, that name, record of the set of servers
ATTACH     mac[32], flags u8 (1: to use UCX's shared memory; 2: to go on over this connection, 4:
           with checksums), UCX address; none with 2
READY      mac[32], UCX address; none where the ATTACH has none
REJECT     code u16, message in UTF-8
JOIN       mac[32]
JOINED     mac[32]
KEEP       mac[32], digest[16] of the record to replace, record
KEPT       mac[32], the record that is kept now
PEER       mac[32]
PEERED     mac[32]
ENCRYPT    mac[32], public key[32] of X25519
ENCRYPTED  mac[32], public key[32] of X25519
=========  =======================================================================
"""

import struct
from enum import IntEnum
from typing import NamedTuple

from ucxstore.base.grants import MAX_CAVEATS_BYTES

MAGIC = b"UCXS"
PROTOCOL_VERSION = 7  # the native core's PROTOCOL_VERSION is the same

NONCE_BYTES = 32
MAC_BYTES = 32  # SHA-256
TOKEN_BYTES = 16
IDENTITY_BYTES = 16

# A body's limit. UCX's worker addresses take from 100 bytes to a few KiB.
MAX_BODY_BYTES = 64 * 1024
MAX_REASON_BYTES = 512
MAX_SOCKET_BYTES = 107  # of a path; a name without a path begins with a zero byte
MAX_RECORD_BYTES = 32 * 1024  # some 250 servers
DIGEST_BYTES = 16
PUBLIC_KEY_BYTES = 32  # of X25519

_HEADER = struct.Struct("<4sHHI")
_CHALLENGE = struct.Struct(f"<I{NONCE_BYTES}s")
_WELCOME = struct.Struct(f"<{TOKEN_BYTES}s{IDENTITY_BYTES}sIH")
_ATTACH = struct.Struct("<B")
_CODE = struct.Struct("<H")

HEADER_BYTES = _HEADER.size

_SECRET_REQUIRED, _ENCRYPTS = 1, 2
_READ_ONLY, _SHARED, _VOLATILE, _SHARES_MEMORY, _RDMA, _OFFERS_UCX = 1, 2, 4, 8, 16, 32
_DECODES = 64
_TO_SHARE_MEMORY = 1
_TO_STAY = 2
_WITH_SUMS = 4


class FrameKind(IntEnum):
    """The kinds of frames."""

    HELLO = 1
    CHALLENGE = 2
    PROOF = 3
    WELCOME = 4
    ATTACH = 5
    READY = 6
    REJECT = 7
    JOIN = 8
    JOINED = 9
    KEEP = 10
    KEPT = 11
    PEER = 12
    PEERED = 13
    ENCRYPT = 14
    ENCRYPTED = 15


class RejectCode(IntEnum):
    """Why a server refuses a client."""

    VERSION = 1
    AUTHENTICATION = 2
    BUSY = 3
    DRAINING = 4
    FAILED = 5
    AGAIN = 6


class Header(NamedTuple):
    """The header of a frame. Only its magic was checked."""

    version: int
    kind: int
    length: int


class Challenge(NamedTuple):
    """The body of a CHALLENGE."""

    secret_required: bool
    nonce: bytes
    encrypts: bool = False


class Welcome(NamedTuple):
    """The body of a WELCOME: what a server grants a client that it has authenticated.

    Parameters
    ----------
    token : bytes
        The token of the session, which is in every message.
    identity : bytes
        The identity of the server's storage: a new one after a restart if it is in memory.
    read_only : bool
        Whether the server refuses writes.
    shared : bool
        Whether other servers hold the same values, so that any of them can answer.
    volatile : bool
        Whether the server's values end with its process.
    socket : bytes
        The name of a Unix socket where a client of the same host can join the session; empty for
        none.
    record : bytes
        The record of the set of servers that this one belongs to; empty for none.
    shares_memory : bool
        Whether the server lets clients use UCX's shared memory.
    rdma : bool
        Whether its host has RDMA.
    offers_ucx : bool
        Whether clients may use UCX.
    decodes : bool
        Whether it decodes values for its clients.
    """

    token: bytes
    identity: bytes
    read_only: bool
    shared: bool = False
    volatile: bool = False
    socket: bytes = b""
    record: bytes = b""
    shares_memory: bool = False
    rdma: bool = False
    offers_ucx: bool = False
    decodes: bool = False


class Attach(NamedTuple):
    """The body of an ATTACH.

    Parameters
    ----------
    address : bytes
        That of the client's UCX worker.
    shares_memory : bool
        Whether the client wants to use UCX's shared memory, as the server has said that it may.
    stays : bool
        Whether messages go over the connection of the handshake. There is no UCX address then.
    checked : bool
        Whether these have checksums.
    """

    address: bytes
    shares_memory: bool = False
    stays: bool = False
    checked: bool = False


# The least and the greatest body of each kind, so that a length is checked before a byte is read.
_FIXED_WELCOME_BYTES = MAC_BYTES + _WELCOME.size
BODY_BYTES = {
    FrameKind.HELLO: (NONCE_BYTES, NONCE_BYTES),
    FrameKind.CHALLENGE: (_CHALLENGE.size, _CHALLENGE.size),
    FrameKind.PROOF: (MAC_BYTES, MAC_BYTES + MAX_CAVEATS_BYTES),
    FrameKind.WELCOME: (
        _FIXED_WELCOME_BYTES,
        _FIXED_WELCOME_BYTES + MAX_SOCKET_BYTES + MAX_RECORD_BYTES,
    ),
    FrameKind.ATTACH: (MAC_BYTES + _ATTACH.size, MAX_BODY_BYTES),
    FrameKind.READY: (MAC_BYTES, MAX_BODY_BYTES),
    FrameKind.REJECT: (_CODE.size, _CODE.size + MAX_REASON_BYTES),
    FrameKind.JOIN: (MAC_BYTES, MAC_BYTES),
    FrameKind.JOINED: (MAC_BYTES, MAC_BYTES),
    FrameKind.KEEP: (MAC_BYTES + DIGEST_BYTES, MAC_BYTES + DIGEST_BYTES + MAX_RECORD_BYTES),
    FrameKind.KEPT: (MAC_BYTES, MAC_BYTES + MAX_RECORD_BYTES),
    FrameKind.PEER: (MAC_BYTES, MAC_BYTES),
    FrameKind.PEERED: (MAC_BYTES, MAC_BYTES),
    FrameKind.ENCRYPT: (MAC_BYTES + PUBLIC_KEY_BYTES, MAC_BYTES + PUBLIC_KEY_BYTES),
    FrameKind.ENCRYPTED: (MAC_BYTES + PUBLIC_KEY_BYTES, MAC_BYTES + PUBLIC_KEY_BYTES),
}


def encode(kind: FrameKind, body: bytes = b"") -> bytes:
    """Put a header of our version before a body."""
    least, greatest = BODY_BYTES[kind]
    if not least <= len(body) <= greatest:
        raise ValueError(f"a {kind.name} of {len(body)} bytes, not {least} to {greatest}")
    return _HEADER.pack(MAGIC, PROTOCOL_VERSION, kind, len(body)) + body


def decode_header(data: bytes) -> Header | None:
    """Read a header; ``None`` if these are not `HEADER_BYTES` that start with the magic."""
    if len(data) != HEADER_BYTES or not data.startswith(MAGIC):
        return None
    _, version, kind, length = _HEADER.unpack(data)
    return Header(version, kind, length)


def encode_challenge(challenge: Challenge) -> bytes:
    """Write the body of a CHALLENGE."""
    flags = challenge.secret_required * _SECRET_REQUIRED | challenge.encrypts * _ENCRYPTS
    return _CHALLENGE.pack(flags, challenge.nonce)


def decode_challenge(body: bytes) -> Challenge:
    """Read the body of a CHALLENGE."""
    flags, nonce = _CHALLENGE.unpack(body)
    return Challenge(bool(flags & _SECRET_REQUIRED), nonce, bool(flags & _ENCRYPTS))


def encode_welcome(welcome: Welcome) -> bytes:
    """Write the body of a WELCOME, without its MAC."""
    flags = welcome.read_only * _READ_ONLY
    flags |= welcome.shared * _SHARED | welcome.volatile * _VOLATILE
    flags |= welcome.shares_memory * _SHARES_MEMORY | welcome.rdma * _RDMA
    flags |= welcome.offers_ucx * _OFFERS_UCX | welcome.decodes * _DECODES
    fixed = _WELCOME.pack(welcome.token, welcome.identity, flags, len(welcome.socket))
    return fixed + welcome.socket + welcome.record


def decode_welcome(body: bytes) -> Welcome:
    """Read the body of a WELCOME, without its MAC."""
    token, identity, flags, size = _WELCOME.unpack_from(body)
    rest = body[_WELCOME.size :]
    return Welcome(
        token,
        identity,
        read_only=bool(flags & _READ_ONLY),
        shared=bool(flags & _SHARED),
        volatile=bool(flags & _VOLATILE),
        socket=rest[:size],
        record=rest[size:],
        shares_memory=bool(flags & _SHARES_MEMORY),
        rdma=bool(flags & _RDMA),
        offers_ucx=bool(flags & _OFFERS_UCX),
        decodes=bool(flags & _DECODES),
    )


def encode_attach(attach: Attach) -> bytes:
    """Write the body of an ATTACH, without its MAC."""
    flags = attach.shares_memory * _TO_SHARE_MEMORY
    flags |= attach.stays * _TO_STAY | attach.checked * _WITH_SUMS
    return _ATTACH.pack(flags) + attach.address


def decode_attach(body: bytes) -> Attach:
    """Read the body of an ATTACH, without its MAC."""
    (flags,) = _ATTACH.unpack_from(body)
    return Attach(
        body[_ATTACH.size :],
        shares_memory=bool(flags & _TO_SHARE_MEMORY),
        stays=bool(flags & _TO_STAY),
        checked=bool(flags & _WITH_SUMS),
    )


def encode_reject(code: RejectCode, reason: str) -> bytes:
    """Write a whole REJECT frame; a reason that is too long is cut."""
    text = reason.encode(errors="replace")[:MAX_REASON_BYTES]
    return encode(FrameKind.REJECT, _CODE.pack(code) + text)


def decode_reject(body: bytes) -> tuple[int, str]:
    """Read the body of a REJECT: a code, perhaps an unknown one, and a printable reason."""
    (code,) = _CODE.unpack_from(body)
    text = body[_CODE.size :].decode(errors="replace")
    # The text is from an unknown peer, and may be printed in a terminal.
    return code, "".join(c if c.isprintable() else "?" for c in text)
