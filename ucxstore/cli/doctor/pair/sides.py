"""Examine one host for a report: versions, kernel, UCX, limits, network devices and their speeds.

No host name, no address and no secret is among these facts.
"""

import hashlib
import os
import platform
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Self

from ucxstore.base.foreign import Fields
from ucxstore.base.ucx_library import UcxLibrary
from ucxstore.cli.doctor.advice import SHARED
from ucxstore.cli.doctor.machine import Machine

# The more there are, the longer the report: containers of a host show there as devices, too.
_MOST_DEVICES = 16

_SYS = Path("/sys")
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

# Of ours, these change which UCX is loaded and whether it is used; none has a secret.
_OURS = ("UCXSTORE_UCX",)


@dataclass(frozen=True, kw_only=True)
class Side:
    """Facts about one of the two hosts.

    Attributes
    ----------
    versions : dict of str to str
        By name: ucxstore, Python, and the packages that values pass through.
    kernel : str
    processors : int
        How many this process may use.
    ucx : str
        Version, origin and file of UCX; empty without one.
    transports : dict of str to list of str, or None
        UCX's transports but shared memory, and their devices; ``None`` if unknown.
    locked_memory : int
        Bytes; -1 for no limit.
    container : bool
    environment : dict of str to str
        The variables that UCX reads.
    devices : list of str
        Network devices and RDMA adapters with their speeds, as text.
    adapters : int
        How many of these are RDMA adapters.
    """

    versions: Mapping[str, str]
    kernel: str
    processors: int
    ucx: str
    transports: Mapping[str, list[str]] | None
    locked_memory: int
    container: bool
    environment: Mapping[str, str]
    devices: list[str]
    adapters: int

    @classmethod
    def read(cls, fields: Fields) -> Self:
        """Read what the other host has sent.

        Raises
        ------
        ProtocolError
            If a fact is missing, or is of another type.
        """
        unlimited = fields.plain.get("locked_memory") == -1
        transports: dict[str, list[str]] | None = None
        if fields.plain.get("transports") is not None:
            given = fields.inside("transports")
            transports = {name: given.texts(name) for name in given.plain}
        return cls(
            versions=_texts(fields, "versions"),
            kernel=fields.text("kernel"),
            processors=fields.integer("processors"),
            ucx=fields.text("ucx"),
            transports=transports,
            locked_memory=-1 if unlimited else fields.integer("locked_memory"),
            container=fields.flag("container"),
            environment=_texts(fields, "environment"),
            devices=fields.texts("devices"),
            adapters=fields.integer("adapters"),
        )


def _texts(fields: Fields, name: str) -> dict[str, str]:
    inside = fields.inside(name)
    return {one: inside.text(one) for one in inside.plain}


def machine_sum() -> str:
    """Return a checksum that is the same for all processes of a machine until it is restarted."""
    return hashlib.sha256(_BOOT_ID.read_bytes()).hexdigest()


def examine_side(library: UcxLibrary | None, machine: Machine, sys_folder: Path = _SYS) -> Side:
    """Examine this host.

    Parameters
    ----------
    library : UcxLibrary or None
    machine : Machine
    sys_folder : Path
        Where the kernel shows its devices.
    """
    adapters = list(_adapters(sys_folder / "class/infiniband"))
    transports = machine.transports
    if transports is not None:
        left_out = SHARED | {"self"}
        transports = {name: list(on) for name, on in transports.items() if name not in left_out}
    ours = {name: os.environ[name] for name in _OURS if os.environ.get(name)}
    return Side(
        versions=_versions(),
        kernel=f"{platform.system()} {platform.release()} {platform.machine()}",
        processors=len(os.sched_getaffinity(0)),
        ucx="" if library is None else f"{library.version} ({library.origin}: {library.path})",
        transports=transports,
        locked_memory=machine.locked_memory,
        container=machine.container,
        environment={**machine.environment, **ours},
        devices=(adapters + list(_networks(sys_folder / "class/net")))[:_MOST_DEVICES],
        adapters=len(adapters),
    )


def _versions() -> dict[str, str]:
    found = {"Python": platform.python_version()}
    for name in ("ucxstore", "zarr", "numpy"):
        found[name] = version(name)
    if sys.implementation.name != "cpython":
        found["implementation"] = sys.implementation.name
    return found


def _networks(folder: Path) -> Iterator[str]:
    """Yield the network devices that are up, but the loopback, with what the kernel knows."""
    for device in _entries(folder):
        state = _read(device / "operstate")
        if device.name == "lo" or state not in ("up", "unknown"):
            continue
        words = [device.name]
        # A virtual device has none, or -1.
        speed = _read(device / "speed")
        words.append(f"{speed} Mb/s" if speed.isdecimal() else "speed unknown")
        with suppress(OSError):
            words.append((device / "device/driver").readlink().name)
        if mtu := _read(device / "mtu"):
            words.append(f"MTU {mtu}")
        yield ", ".join(words)


def _adapters(folder: Path) -> Iterator[str]:
    """Yield the ports of RDMA adapters."""
    for adapter in _entries(folder):
        kind = _read(adapter / "hca_type")
        firmware = _read(adapter / "fw_ver")
        for port in _entries(adapter / "ports"):
            words = [
                f"{adapter.name}:{port.name}",
                _read(port / "rate") or "rate unknown",
                _read(port / "link_layer"),
                _read(port / "state").partition(": ")[2],  # "4: ACTIVE"
                _read(port / "gid_attrs/ndevs/0"),
                kind,
                f"firmware {firmware}" if firmware else "",
            ]
            yield ", ".join(word for word in words if word)


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:  # there are none
        return []


def _read(file: Path) -> str:
    try:
        return file.read_text(errors="replace").strip()
    except OSError:  # for a device that is down, the kernel refuses to tell its speed
        return ""
