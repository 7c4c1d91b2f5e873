"""Tables, and a page with charts."""
