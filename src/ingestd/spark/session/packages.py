"""What PySpark needs of this Python beside itself: it asks for some of it only when the first batch comes."""


def missing_packages(master: str = "local[*]") -> str:
    """PySpark's own words for what is missing or too old; empty when all is there."""
    try:
        from pyspark.sql.pandas.utils import require_minimum_pandas_version, require_minimum_pyarrow_version

        require_minimum_pyarrow_version()
        require_minimum_pandas_version()
        if master.startswith("sc://"):
            import pyspark.sql.connect.session  # noqa: F401
    except ImportError as error:
        return " ".join(str(error).split())
    return ""
