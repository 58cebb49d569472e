"""The JVMs that tests start live for seconds, with few rows and many plans: they compile little.

What the second compiler would gain is less than what it takes from the other tests. Spark's classes come from the
archive that the set-up has made (`ingestd.spark.archive`); sessions find it by themselves.
"""

import os

LITTLE = "-XX:TieredStopAtLevel=1"


def quick() -> str:
    """Options of JVMs that are no sessions: masters, workers, executors, servers."""
    from ingestd.model.errors import Fatal
    from ingestd.spark import archive
    from ingestd.spark.session.java import find_java

    try:
        mapped = archive.option(find_java(os.environ), "")
    except Fatal:
        mapped = ""  # no Java: whoever starts one says so
    return " ".join(filter(None, (LITTLE, "-XX:+UseSerialGC", mapped)))
