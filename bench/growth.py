"""How the time and the memory of one batch grow with its bytes: 1, 2 and 4 GB of input, or what is asked for.

The work is that of `bench.spark`. Memory is the most that the JVM and its Python workers had resident at one moment,
and the most that this process, the daemon's place, had. A batch is read in parts of bounded size and its rows wait on
disk, so time should grow with the bytes and memory should not.

`python -m bench.growth [MB…]` prints a table and, last, one line of JSON.
"""

import json
import os
import shutil
import sys
import threading
import time
from pathlib import Path
from typing import Any, Self

from bench.spark import make, warm_session, with_ingestd
from ingestd.spark.session.classic import ClassicEngine

SIZES = (1_000, 2_000, 4_000)  # MB
FILE = 5_000_000
LINEAR_TARGET = 1.2
_PAGE = os.sysconf("SC_PAGE_SIZE")


def resident(session: int) -> tuple[int, int]:
    """Bytes of the processes of the JVM's session, and of this one."""
    theirs = ours = 0
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session:
            theirs += int(fields[21]) * _PAGE
        elif int(entry.name) == os.getpid():
            ours = int(fields[21]) * _PAGE
    return theirs, ours


class Watch:
    """The most that was resident while the block ran."""

    def __init__(self, session: int) -> None:
        self._session = session
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self.most = (0, 0)

    def _look(self) -> None:
        while not self._over.wait(0.1):
            theirs, ours = resident(self._session)
            self.most = (max(self.most[0], theirs), max(self.most[1], ours))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def main(sizes: tuple[int, ...] = SIZES, file: int = FILE) -> None:
    report: dict[str, Any] = {}
    first = 0.0
    with warm_session() as (engine, where, folder):
        assert isinstance(engine, ClassicEngine)
        print(f"{'MB':>8}{'seconds':>10}{'s per GB':>10}{'Spark MB':>10}{'own MB':>8}   linear within {LINEAR_TARGET}")
        for size in sizes:
            corpus = make(folder, f"mb{size}", max(1, size * 1_000_000 // file), file)
            out = folder / f"out{size}"
            with Watch(engine.pid) as watch:
                began = time.perf_counter()
                assert with_ingestd(engine, where.cores, corpus, out) == corpus.keys
                seconds = time.perf_counter() - began
            pace = seconds / corpus.size * 1e9
            first = first or pace
            theirs, ours = (round(one / 1e6) for one in watch.most)
            print(f"{corpus.size / 1e6:8.0f}{seconds:10.1f}{pace:10.2f}{theirs:10,}{ours:8,}{pace / first:12.2f} x")
            report[f"{size}_mb"] = {"s": round(seconds, 2), "spark_mb": theirs, "own_mb": ours}
            report["x_linear"] = round(pace / first, 2)
            shutil.rmtree(corpus.folder)
            shutil.rmtree(out)
    print(json.dumps(report))


if __name__ == "__main__":
    main(tuple(map(int, sys.argv[1:])) or SIZES)
