"""Choose and load the UCX library of this process, once the native core needs it.

The core is not linked to UCX. Before it makes its first context, it calls `load`, and looks the
functions up in the library that this returns (`native/base/ucx_library`). So a process that
connects to nobody over UCX does not load it.
"""

import ctypes
import importlib.util
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from ucxstore.base import process
from ucxstore.base.errors import UcxUnavailableError

_SONAME = "libucp.so.0"
_MINIMUM = (1, 18)  # what the core is built against; 1.13 lacks flags that it uses
_REMEDY = (
    "Install the wheel (pip install libucx-cu12), "
    f"or a UCX {_MINIMUM[0]}.{_MINIMUM[1]} or later of the system or of conda-forge, "
    f"where the dynamic linker finds {_SONAME}."
)

# UCX's own default is standard output, where its log would mix with a program's results. And it
# takes signals from the program: SIGHUP, which would no longer end the process but turn UCX's debug
# log on, and in some builds SIGSEGV and its like.
_MANNERS = {
    "UCX_LOG_FILE": "stderr",
    "UCX_DEBUG_SIGNO": "0",
    "UCX_HANDLE_ERRORS": "none",
}

# UCX patches mmap and its like, to learn when memory that it has registered with a device goes
# away. That takes 0.4 s, so it is left out where there is no such device. Whoever sets one of
# these variables decides for himself.
_NO_HOOKS = {"UCX_MEM_MMAP_HOOK_MODE": "none"}
_OF_HOOKS = ("UCX_MEM_MMAP_HOOK_MODE", "UCX_MEM_EVENTS", "UCX_RCACHE_ENABLE")
_DEVICES = (
    "sys/class/infiniband/*",
    "dev/nvidiactl",
    "dev/kfd",  # AMD
    "dev/dxg",  # any GPU, in Windows' Linux
    "dev/knem",
    "dev/xpmem",
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
    has_hooks
        ``False`` if it was loaded without its hooks on mmap, and so caches no registered memory.
    handle
        What ``dlopen`` has returned.
    """

    origin: Literal["wheel", "system"]
    version: str
    path: Path
    has_hooks: bool = True
    handle: int = field(default=0, repr=False)


_library: UcxLibrary | None = None
_lock = process.lock()


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
    global _library
    with _lock:
        if _library is None:
            _library = _load()
        return _library


def describe() -> str:
    """Return version and origin of the library, without loading it."""
    if _library is not None:
        return f"UCX {_library.version} ({_library.origin})"
    if os.environ.get("UCXSTORE_UCX") == "system" or _wheel_library() is None:
        return "UCX of the system"
    from importlib.metadata import PackageNotFoundError, version  # takes a while

    for name in ("libucx-cu13", "libucx-cu12"):
        with suppress(PackageNotFoundError):
            return f"UCX {version(name)} (wheel)"
    return "UCX of a wheel"


def loaded_version() -> str:
    """Return the version of the library that is loaded; "" if none has been needed."""
    return "" if _library is None else _library.version


def _load() -> UcxLibrary:
    forced = os.environ.get("UCXSTORE_UCX") or None
    if forced not in (None, "wheel", "system"):
        raise UcxUnavailableError(f'UCXSTORE_UCX is {forced!r}; it takes "wheel" or "system".')

    there = _already_loaded()
    has_hooks = there is not None or _wants_hooks()
    library = _describe(there or _open(forced, has_hooks), has_hooks)
    if forced not in (None, library.origin):
        warnings.warn(
            f"UCXSTORE_UCX={forced}, but {library.path} was loaded before ucxstore and is used.",
            RuntimeWarning,
            stacklevel=3,
        )
    return library


def _already_loaded() -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(_SONAME, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    except OSError:
        return None


def _wants_hooks() -> bool:
    """Tell whether UCX needs its hooks on mmap: for a device, or because the user has said so."""
    if any(name in os.environ for name in _OF_HOOKS):
        return True
    return any(any(Path("/").glob(device)) for device in _DEVICES)


def _open(forced: str | None, has_hooks: bool) -> ctypes.CDLL:
    wheel = _wheel_library()
    if forced == "wheel" and wheel is None:
        raise UcxUnavailableError(f"UCXSTORE_UCX=wheel, but no libucx is installed. {_REMEDY}")
    try:
        with _environment(_MANNERS if has_hooks else _MANNERS | _NO_HOOKS):
            return ctypes.CDLL(_SONAME if forced == "system" or wheel is None else str(wheel))
    except OSError as error:
        asked = "" if forced is None else f" (UCXSTORE_UCX={forced})"
        raise UcxUnavailableError(f"UCX can't be loaded{asked}: {error}. {_REMEDY}") from error


@contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    """Set variables that UCX reads while it is loaded, except those that the user has set."""
    ours = {name: value for name, value in variables.items() if name not in os.environ}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name in ours:
            del os.environ[name]


def _wheel_library() -> Path | None:
    spec = importlib.util.find_spec("libucx")
    for folder in (spec and spec.submodule_search_locations) or ():
        if (library := Path(folder, "lib", _SONAME)).exists():
            return library
    return None


def _describe(handle: ctypes.CDLL, has_hooks: bool) -> UcxLibrary:
    numbers = [ctypes.c_uint() for _ in range(3)]
    handle.ucp_get_version(*map(ctypes.byref, numbers))
    version = tuple(number.value for number in numbers)
    path = _path(handle)
    dotted = ".".join(map(str, version))
    if version < _MINIMUM:
        raise UcxUnavailableError(f"{path} is UCX {dotted}, which is too old. {_REMEDY}")
    wheel = _wheel_library()
    is_wheel = wheel is not None and path.resolve().parent == wheel.resolve().parent
    origin: Literal["wheel", "system"] = "wheel" if is_wheel else "system"
    return UcxLibrary(origin, dotted, path, has_hooks, handle._handle)


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
