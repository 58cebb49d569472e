"""GoogleSQL, without an engine: text to tokens to trees, types, and what converts to what.

Two engines are written for from here: DuckDB, by the local BigQuery, and Spark, for rule expressions. Nothing in here
knows either of them, or anything else of the daemon.
"""
