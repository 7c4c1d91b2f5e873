"""The servers of one store: where keys are, who is there, and requests to several."""
