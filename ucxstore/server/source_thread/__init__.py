"""The thread that asks a source, and tells the other servers of it."""
