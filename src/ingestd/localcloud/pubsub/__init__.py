"""Pub/Sub on a local log."""
