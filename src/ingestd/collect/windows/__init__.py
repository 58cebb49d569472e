"""Batch windows: which files load together. Timers in memory, backed by lock objects in Cloud Storage."""
