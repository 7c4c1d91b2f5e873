"""Several servers of one source: the machine of a member, its events and its messages. No I/O."""
