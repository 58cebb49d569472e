"""The daemon seen from outside: what it remembers of its work, as values for the page and its JSON API. Read-only."""
