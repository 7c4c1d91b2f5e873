"""The commands that look at servers and copy between them and other places."""
