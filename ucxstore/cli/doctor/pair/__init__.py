"""``ucxstore doctor --pair`` and ``--listen``: measure each network way between two hosts.

`pairing` runs on one host and `listening` on the other. They exchange messages (`mailbox`) through
values of a small server over plain TCP. `trials` plans which ways are tried. For each of them the
listening host starts a server, and `child`, a process of its own, takes the steps of `measuring`:
a crash or a hang inside UCX ends only that process. `reporting` makes the text to report.
"""

# Ports of the listening host, from the first on: messages, the server of a trial, and UCX's ports,
# which the kernel keeps for a minute after each connection.
DEFAULT_PORT = 7450
PORTS = 50

# Seconds until the other host must have come.
DEFAULT_WAIT = 600.0
