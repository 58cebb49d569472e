"""Completions: which batch (or route) a finished BigQuery job continues."""
