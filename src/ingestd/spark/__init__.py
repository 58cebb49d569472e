"""The data pipeline before the load: a batch's files read once, shaped, and left as few well-sized files, on Spark."""
