"""Choose and load the UCX library of this process, before the native core is loaded.

The core is linked to ``libucp.so.0`` by name alone. The dynamic linker resolves that name to a
library that is loaded already. So the core uses whichever library was loaded first.
"""

import ctypes
import importlib.util
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from ucxstore.errors import UcxUnavailableError

_SONAME = "libucp.so.0"
_MINIMUM = (1, 18)  # what the core is built against; 1.13 lacks flags that it uses
_REMEDY = (
    'Install the wheel (pip install "ucxstore[cu12]", or cu13 beside CUDA 13), '
    f"or a UCX {_MINIMUM[0]}.{_MINIMUM[1]} or later of the system or of conda-forge, "
    f"where the dynamic linker finds {_SONAME}."
)


@dataclass(frozen=True)
class UcxLibrary:
    """The UCX library in use.

    Attributes
    ----------
    origin
        ``"wheel"`` if it lies in the ``libucx`` package of this Python, else ``"system"``.
    version
        As the library itself reports it, ``"1.21.0"``.
    path
        The file it was loaded from.
    """

    origin: Literal["wheel", "system"]
    version: str
    path: Path


@cache
def load() -> UcxLibrary:
    """Load UCX, once a process.

    The wheel is taken if it is installed, else the system's library; ``UCXSTORE_UCX=wheel`` or
    ``UCXSTORE_UCX=system`` in the environment forces either. A library that is loaded already (by
    ucxx, say) is used in any case, since a process can hold only one.

    Raises
    ------
    UcxUnavailableError
        If there is no such library, or one older than 1.18, or if ``UCXSTORE_UCX`` has another
        value.
    """
    forced = os.environ.get("UCXSTORE_UCX") or None
    if forced not in (None, "wheel", "system"):
        raise UcxUnavailableError(f'UCXSTORE_UCX is {forced!r}; it takes "wheel" or "system".')

    handle = _already_loaded() or _open(forced)
    library = _describe(handle)
    if forced not in (None, library.origin):
        warnings.warn(
            f"UCXSTORE_UCX={forced}, but {library.path} was loaded before ucxstore and is used.",
            RuntimeWarning,
            stacklevel=2,
        )
    return library


def _already_loaded() -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(_SONAME, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    except OSError:
        return None


def _open(forced: str | None) -> ctypes.CDLL:
    wheel = _wheel_library()
    if forced == "wheel" and wheel is None:
        raise UcxUnavailableError(f"UCXSTORE_UCX=wheel, but no libucx is installed. {_REMEDY}")
    try:
        with _log_to_stderr():
            return ctypes.CDLL(_SONAME if forced == "system" or wheel is None else str(wheel))
    except OSError as error:
        asked = "" if forced is None else f" (UCXSTORE_UCX={forced})"
        raise UcxUnavailableError(f"UCX can't be loaded{asked}: {error}. {_REMEDY}") from error


@contextmanager
def _log_to_stderr() -> Iterator[None]:
    """Make UCX log to standard error; it reads ``UCX_LOG_FILE`` while it is loaded.

    Its own default is standard output, where its log would mix with a program's results.
    """
    if "UCX_LOG_FILE" in os.environ:
        yield
        return
    os.environ["UCX_LOG_FILE"] = "stderr"
    try:
        yield
    finally:
        del os.environ["UCX_LOG_FILE"]


def _wheel_library() -> Path | None:
    spec = importlib.util.find_spec("libucx")
    for folder in (spec and spec.submodule_search_locations) or ():
        if (library := Path(folder, "lib", _SONAME)).exists():
            return library
    return None


def _describe(handle: ctypes.CDLL) -> UcxLibrary:
    numbers = [ctypes.c_uint() for _ in range(3)]
    handle.ucp_get_version(*map(ctypes.byref, numbers))
    version = tuple(number.value for number in numbers)
    path = _path(handle)
    dotted = ".".join(map(str, version))
    if version < _MINIMUM:
        raise UcxUnavailableError(f"{path} is UCX {dotted}, which is too old. {_REMEDY}")
    wheel = _wheel_library()
    is_wheel = wheel is not None and path.resolve().parent == wheel.resolve().parent
    return UcxLibrary("wheel" if is_wheel else "system", dotted, path)


class _DlInfo(ctypes.Structure):
    _fields_ = (
        ("dli_fname", ctypes.c_char_p),
        ("dli_fbase", ctypes.c_void_p),
        ("dli_sname", ctypes.c_char_p),
        ("dli_saddr", ctypes.c_void_p),
    )


def _path(handle: ctypes.CDLL) -> Path:
    info = _DlInfo()
    symbol = ctypes.cast(handle.ucp_get_version, ctypes.c_void_p)
    ctypes.CDLL(None).dladdr(symbol, ctypes.byref(info))
    return Path(os.fsdecode(info.dli_fname))
