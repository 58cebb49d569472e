"""From Pub/Sub messages to typed events."""
