"""Files into rows on Spark, and rows into files: fetched, read by its workers, written, and told in a manifest."""
