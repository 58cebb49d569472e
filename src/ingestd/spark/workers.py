"""Where Spark's Python workers come from: a process that has imported what they need, and forks.

PySpark's own imports nothing, so every new worker (each core's first, and each after a minute without work) spends
half a second on it. Only what starts no thread is imported here: a fork takes one thread along, and Arrow has several.
"""

import gc
import os
import sys
from typing import TYPE_CHECKING

from pyspark import daemon

if TYPE_CHECKING:
    import socket

_worker = daemon.worker


def preload() -> None:
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy starts threads for what no reader does
    # Arrow's own allocator gives memory back at once and gets it again for every piece of a file, page by page: a fifth
    # of a worker's time.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    import numpy
    import pyspark.worker

    from ingestd.spark.files import bucket, read_task, readers, write_task

    assert numpy and pyspark.worker and bucket and readers and read_task and write_task
    set_aside()  # by no fork to be copied, either


def set_aside() -> None:
    """What is there stays: PySpark collects garbage after every task, and is not to look at all modules each time."""
    gc.collect()
    gc.freeze()


def work(sock: "socket.socket", authenticated: bool) -> int:
    """One task, as PySpark runs it; what it has imported (Arrow, pandas) is set aside after it."""
    known = len(sys.modules)
    code = _worker(sock, authenticated)
    if len(sys.modules) > known:
        set_aside()
    return code


if __name__ == "__main__":
    preload()
    daemon.worker = work
    daemon.manager()
