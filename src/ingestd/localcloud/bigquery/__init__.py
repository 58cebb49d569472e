"""BigQuery on DuckDB."""
