"""A batch's life: accepted, loaded, proven, acted upon, done — and resumable after a crash between any two of these.

Read `record` and `content` for what is remembered, `runner` for the life itself, `steps` and `settling` for what is
decided, `attempts`, `prepared` and `publishing` for the ways into tables, `recovery` and `quarantine` for bad files.
"""
