"""GoogleSQL's functions on Spark, one module per family. What is not in the table is refused by its name."""

from difflib import get_close_matches

from ingestd.spark.sql.functions import arrays, conditionals, date_formats, dates, jsons, numbers, strings
from ingestd.spark.sql.functions.dates import DATE_PARTS
from ingestd.spark.sql.functions.registry import REGISTRY, Call, Function

FAMILIES = (arrays, conditionals, dates, jsons, numbers, date_formats, strings)


def unknown_function(name: str) -> str:
    near = get_close_matches(name, REGISTRY, n=1, cutoff=0.8)
    return f"function {name} is not available on Spark" + (f"; did you mean {near[0]}?" if near else "")


__all__ = ["DATE_PARTS", "FAMILIES", "REGISTRY", "Call", "Function", "unknown_function"]
