"""GoogleSQL's functions on Spark, one module per family. What is not in the table is refused by its name."""

from ingestd.spark.sql.functions import arrays, conditionals, date_formats, dates, jsons, numbers, strings
from ingestd.spark.sql.functions.registry import REGISTRY, Call

FAMILIES = (arrays, conditionals, dates, jsons, numbers, date_formats, strings)


__all__ = ["FAMILIES", "REGISTRY", "Call"]
