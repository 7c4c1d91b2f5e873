"""A server as a process of its own: signals, logs, metrics, and who is told that it runs."""
