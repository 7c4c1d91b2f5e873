"""What commands share: parsers, statuses, text, and a connection to a server."""
