"""Examine the machine for ``ucxstore doctor``: UCX's transports, limits, environment."""

import os
import re
import resource
import shutil
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ucxstore.base.errors import UcxUnavailableError
from ucxstore.base.grants import utc_text
from ucxstore.base.ucx_library import UcxLibrary, load

# ucx_info opens every device, so it hangs if a driver does.
_INFO_SECONDS = 20.0

_TRANSPORT = re.compile(r"#\s+Transport: (\S+)\s+#\s+Device: (\S+)")


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The transports of UCX on this machine, and its limits.

    Attributes
    ----------
    transports : dict of str to list of str, or None
        UCX's transports and the devices of each; ``None`` without ``ucx_info``.
    locked_memory, open_files : int
        The soft limits, in bytes and descriptors; -1 for none.
    container : bool
        Whether this seems to be a container.
    clock : str
        What time it is here. The server's time says when a grant ends.
    environment : dict of str to str
        The variables that UCX reads.
    """

    transports: Mapping[str, list[str]] | None
    locked_memory: int
    open_files: int
    container: bool
    clock: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)


def find_ucx() -> tuple[UcxLibrary | None, str]:
    """Return the UCX that is used here; without one, why there is none."""
    try:
        return load(), ""
    except UcxUnavailableError as error:
        return None, str(error)


def examine_machine(library: UcxLibrary | None) -> Machine:
    """Examine this machine, and what UCX finds in it, if there is one."""
    return Machine(
        transports=None if library is None else _transports(library),
        locked_memory=_limit(resource.RLIMIT_MEMLOCK),
        open_files=_limit(resource.RLIMIT_NOFILE),
        container=any(Path(sign).exists() for sign in ("/.dockerenv", "/run/.containerenv")),
        clock=utc_text(time.time()),
        environment={
            name: value for name, value in sorted(os.environ.items()) if name.startswith("UCX_")
        },
    )


def parse_transports(text: str) -> dict[str, list[str]]:
    """Parse the transports and their devices in the output of ``ucx_info -d``."""
    found: dict[str, list[str]] = {}
    for transport, device in _TRANSPORT.findall(text):
        devices = found.setdefault(transport, [])
        if device not in devices:
            devices.append(device)
    return found


def _transports(library: UcxLibrary) -> dict[str, list[str]] | None:
    folder = library.path.parent
    beside = shutil.which("ucx_info", path=str(folder.parent / "bin"))
    program = beside or shutil.which("ucx_info")
    if program is None:
        return None
    try:
        done = subprocess.run(
            [program, "-d"],
            # Without its hooks on mmap, which take it 0.4 s to install.
            env={
                **os.environ,
                "LD_LIBRARY_PATH": str(folder),
                "UCX_MEM_MMAP_HOOK_MODE": "none",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            errors="replace",
            timeout=_INFO_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return parse_transports(done.stdout)


def _limit(kind: int) -> int:
    soft, _ = resource.getrlimit(kind)
    return -1 if soft == resource.RLIM_INFINITY else soft
