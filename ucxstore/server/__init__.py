"""Serve values: in threads of this process, or in a process of its own."""

from ucxstore.server.server import Server

__all__ = ["Server"]
