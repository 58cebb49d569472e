"""What becomes of a batch on Spark: which files are good, and what is done to their rows."""
