"""Options of a server: what can be set, and what is checked."""
