"""GoogleSQL as Spark SQL: rule expressions, written down for Spark with the results they have in BigQuery."""
