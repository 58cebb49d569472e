"""ingestd: files from Google Cloud Storage into BigQuery, exactly once."""

__version__ = "0.1.0"
