"""How long servers of one source wait for one another; seconds."""

# For so long a server relies on what it has, from the start of its last look at its presence.
LEASE_SECONDS = 6.0
RENEW_SECONDS = LEASE_SECONDS / 3

# Who shuts another one out waits for so long: its clock may be slower than this one.
FENCE_SECONDS = LEASE_SECONDS * 1.05 + 0.5

# A peer must say within so long that it has noted a change, before it is shut out.
ACK_SECONDS = 2.5

# To reach a peer, and to be heard by one that is there.
DIAL_SECONDS = 3.0
SILENCE_SECONDS = 2.5 * RENEW_SECONDS

# Between two attempts to join; a write that waits brings the next one forward.
PAUSES = (0.1, 0.5, 2.0, 5.0, 15.0, 60.0)

# Between two attempts to shut a peer out, to look or to note, while the source fails.
AGAIN_SECONDS = 1.0

# A write waits for others for so long, and then fails before it is sent.
PATIENCE_SECONDS = 3 * FENCE_SECONDS

# For so long a server that cannot reach another one relies on no lease. Then it tries again.
YIELD_SECONDS = 60.0

# A request that was given up is carried out within so long, or never. S3, Azure and Google refuse a
# request whose signature is older than 15 minutes when it arrives; the rest is for its way.
LATE_SECONDS = 16 * 60.0

# A server that has changed nothing for so long takes its note back.
IDLE_SECONDS = 60.0
