"""Where Spark's Python workers come from: a process that has imported what they need, and forks.

PySpark's own imports nothing, so every new worker (each core's first, and each after a minute without work) spends
half a second on it. Only what starts no thread is imported here: a fork takes one thread along, and Arrow has several.
"""

import gc
import os


def preload() -> None:
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy starts threads for what no reader does
    # Arrow's own allocator gives memory back at once and gets it again for every piece of a file, page by page: a fifth
    # of a worker's time.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    import numpy
    import pyspark.worker

    from ingestd.spark.files import bucket, read_task, readers, write_task

    assert numpy and pyspark.worker and bucket and readers and read_task and write_task
    gc.collect()
    gc.freeze()  # PySpark collects after every task: modules are not to be looked at each time, nor copied by a fork


if __name__ == "__main__":
    from pyspark.daemon import manager

    preload()
    manager()
