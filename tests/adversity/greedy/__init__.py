"""Clients that take what they can of a server, and what others notice of that."""
