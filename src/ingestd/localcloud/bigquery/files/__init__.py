"""Files in and out of the local BigQuery: loads, extracts, external tables and streamed rows."""
