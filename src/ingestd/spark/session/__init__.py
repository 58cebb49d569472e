"""Spark kept up: where it runs, the process behind it, and a way to run work on it."""
