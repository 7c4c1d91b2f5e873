"""Whether this host has RDMA: InfiniBand, RoCE or iWARP."""

from pathlib import Path

_DEVICES = Path("/sys/class/infiniband")


def has_rdma(devices: Path = _DEVICES) -> bool:
    """Tell whether a port of an RDMA device is active, as the kernel says in sysfs.

    Source: https://docs.kernel.org/infiniband/sysfs.html ("/sys/class/infiniband", `state`).
    """
    for state in devices.glob("*/ports/*/state"):
        try:
            if "ACTIVE" in state.read_text():
                return True
        except OSError:  # the device has just gone
            continue
    return False
