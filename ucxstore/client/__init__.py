"""Connect to a server, send requests to it, and wait for their results."""
