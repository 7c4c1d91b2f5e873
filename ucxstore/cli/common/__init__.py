"""What commands share: parsers, statuses, and a connection to a server."""
