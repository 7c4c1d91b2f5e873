"""What client and server agree on: frames and the handshake, without I/O."""
