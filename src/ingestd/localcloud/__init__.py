"""The local cloud: Storage, Pub/Sub and BigQuery on loopback, for laptops and tests.

Each service is a core (plain synchronous Python with exact semantics) and a thin server that speaks Google's wire
format, so that unmodified Google clients work against it.
"""
