"""What a second worker is worth: the same batch on one worker of a standalone cluster, with one core, then on two.

The work is that of `bench.spark`, the files lie on a disk that all processes share (`spark.files: local`). Beside it
the same workers count numbers, which is all computing and no input: what this machine's second core is worth.

`python -m bench.cluster [MB]` takes 2,000 MB unless told otherwise; it prints a table and, last, one line of JSON.
"""

import json
import shutil
import sys
import tempfile
import time
from pathlib import Path

import structlog
from tests.support.spark.processes import Cluster, standalone_cluster

from bench.spark import Corpus, make, with_ingestd
from ingestd.settings import Spark as SparkSettings
from ingestd.spark.session.engine import Engine
from ingestd.spark.start import open_engine

SIZE, FILE, ROUNDS, NUMBERS = 2_000, 5_000_000, 3, 3_000_000_000
TARGET = 1.7
EXECUTORS = ""  # options of their JVMs


def counting(engine: Engine) -> float:
    with engine.tagged("count", "default") as session:
        began = time.perf_counter()
        session.range(0, NUMBERS, 1, 8).selectExpr("sum(hash(id) % 7) AS s").collect()
        return time.perf_counter() - began


def on(workers: int, cluster: Cluster, folder: Path, corpus: Corpus, rounds: int) -> tuple[float, float]:
    """The best of some rounds on so many of the cluster's workers: of the batch, and of counting."""
    place = folder / f"on{workers}"
    place.mkdir()
    conf = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "512m",
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": EXECUTORS,
        "spark.sql.shuffle.partitions": "8",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
        "spark.cores.max": str(workers),  # a worker has one: the others get no executor
    }
    settings = SparkSettings(master=cluster.url, files="local", scratch=folder / "scratch", conf=conf)
    engine = open_engine(settings)
    try:
        counting(engine)  # warms up
        batches, counts = [], []
        for number in range(rounds):
            out = place / f"out{number}"
            began = time.perf_counter()
            assert with_ingestd(engine, 0, corpus, out) == corpus.keys
            batches.append(time.perf_counter() - began)
            counts.append(counting(engine))
            shutil.rmtree(out)
        return min(batches), min(counts)
    finally:
        engine.close()


def main(size: int = SIZE, file: int = FILE, rounds: int = ROUNDS) -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    folder = Path(tempfile.mkdtemp(prefix="ingestd-bench-"))
    try:
        corpus = make(folder, "files", max(1, size * 1_000_000 // file), file)
        with standalone_cluster(folder, workers=2) as cluster:
            one, two = (on(workers, cluster, folder, corpus, rounds) for workers in (1, 2))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    gain, most = one[0] / two[0], one[1] / two[1]
    print(f"{size:,} MB       {'one worker':>12}{'two':>8}{'gain':>8}")
    print(f"  the batch   {one[0]:10.1f} s{two[0]:6.1f} s{gain:8.2f}   target {TARGET}")
    print(f"  counting    {one[1]:10.1f} s{two[1]:6.1f} s{most:8.2f}   what the second core is worth")
    report = {"one_s": one[0], "two_s": two[0], "gain": gain, "most": most}
    print(json.dumps({name: round(value, 2) for name, value in report.items()}))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
