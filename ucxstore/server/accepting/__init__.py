"""Who may come in: sockets, handshakes, their limits, and the way to a session."""
