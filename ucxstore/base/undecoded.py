"""`UndecodedError`: what the core raises where a server does not decode a value."""


class UndecodedError(Exception):
    """A server does not decode a value. The pipeline catches it, and decodes the value itself."""
