"""`ingestd acceptance`: the daemon against a real project, with resources of its own, and a verdict."""
