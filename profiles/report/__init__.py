"""What was counted, for people: tables, and a page with charts."""
