"""The way to one server: connect, send requests, and hear of their end."""
