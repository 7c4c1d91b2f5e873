"""A kernel that refuses options of sockets, as hardened ones do: a filter of system calls."""

import ctypes
import os
import platform
import socket
import struct

# (SOL_SOCKET, SO_ATTACH_FILTER) and (IPPROTO_TCP, TCP_MD5SIG_EXT)
FILTERS = (1, 26)
KEYS = (6, 32)

_CALLS = {"x86_64": (54, 317), "aarch64": (208, 277)}
_SETSOCKOPT, _SECCOMP = _CALLS.get(platform.machine(), (0, 0))
_NO_NEW_PRIVILEGES = 38
_SET_FILTER, _ALL_THREADS = 1, 1

_LOAD, _JUMP_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _NOT_PERMITTED = 0x7FFF0000, 0x00050001
_NUMBER, _LEVEL, _OPTION = 0, 24, 32  # in what such a filter sees


def refuse(*options: tuple[int, int]) -> None:
    """Let no thread of this process set these options of sockets any more, each by its level."""
    assert _SETSOCKOPT, f"which system calls {platform.machine()} has is not known here"
    code: list[tuple[int, int, int, int]] = []
    for level, option in options:
        code += [
            (_LOAD, 0, 0, _NUMBER),
            (_JUMP_EQUAL, 0, 5, _SETSOCKOPT),
            (_LOAD, 0, 0, _LEVEL),
            (_JUMP_EQUAL, 0, 3, level),
            (_LOAD, 0, 0, _OPTION),
            (_JUMP_EQUAL, 0, 1, option),
            (_RETURN, 0, 0, _NOT_PERMITTED),
        ]
    code.append((_RETURN, 0, 0, _ALLOW))
    packed = b"".join(struct.pack("HBBI", *one) for one in code)
    program = ctypes.create_string_buffer(packed, len(packed))
    about = ctypes.create_string_buffer(
        struct.pack("@HP", len(code), ctypes.addressof(program)), struct.calcsize("@HP")
    )
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
    if libc.syscall(_SECCOMP, _SET_FILTER, _ALL_THREADS, about) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def has_keys() -> bool:
    """Whether this kernel has signatures for TCP."""
    with socket.socket() as sock:
        try:
            sock.setsockopt(*KEYS, key_for_all(b"k"))
        except OSError:
            return False
    return True


def key_for_all(key: bytes) -> bytes:
    """Return the value of the option that sets the key for all of IPv4, or removes it if empty."""
    address = struct.pack("H126x", socket.AF_INET)
    return address + struct.pack("BBHi80s", 1, 0, len(key), 0, key)
