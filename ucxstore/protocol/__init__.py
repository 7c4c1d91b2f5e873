"""The protocol of client and server in Python: handshake, frames, options of sockets."""
