"""Several servers of one source: a pure state machine, and what carries it out."""
