"""Pub/Sub on a local log: a synchronous core with Google's semantics, and its gRPC and REST faces.

Follow a message: `core.publish` → `journal` (durable) → `subscription` (queue, leases, redelivery) → `server` / `rest`.
"""
