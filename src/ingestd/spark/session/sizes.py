"""How a local Spark shares out what the container has: cores for tasks, memory for the JVM and its Python workers.

A task reads its files in a Python worker of its own, so memory may allow fewer tasks than there are cores:

    limit >= daemon + the JVM beside its heap + heap + tasks * worker

The heap gives way first, down to the least that Spark works with, then the tasks, down to one. When even that is more
than the limit, the kernel would end the pod in the middle of a batch: that is said at the start. docs/spark.md has
examples, docs/deployment-proof.md what was measured.
"""

from dataclasses import dataclass

MIB = 1024**2
DAEMON = 512 * MIB  # the asyncio process: clients, windows, files on their way to disk
BESIDE_HEAP = 512 * MIB  # classes, compiled code, threads, Arrow's buffers
WORKER = 384 * MIB  # Python, pyarrow and pandas take half of it; the rest is for rows on their way
LEAST_HEAP, MOST_HEAP = 1024 * MIB, 4096 * MIB


@dataclass(frozen=True, slots=True)
class Sizes:
    cores: int
    heap: int
    memory: int  # what it is shared out of

    @property
    def needed(self) -> int:
        return DAEMON + BESIDE_HEAP + self.heap + self.cores * WORKER

    @property
    def problem(self) -> str:
        """Empty when everything fits."""
        if self.needed <= self.memory:
            return ""
        return (
            f"Spark with {self.cores} tasks at once and a heap of {self.heap // MIB} MiB may take "
            f"{self.needed // MIB} MiB and the limit is {self.memory // MIB} MiB: raise the memory limit, or ask for "
            "less with spark.master: local[N] and spark.heap"
        )


def share_out(cores: int, memory: int, *, tasks: int | None = None, heap: int | None = None) -> Sizes:
    """`tasks` and `heap` are what settings ask for: taken as they are."""
    rest = memory - DAEMON - BESIDE_HEAP
    if tasks is None:
        tasks = max(1, min(cores, (rest - (heap or LEAST_HEAP)) // WORKER))
    if heap is None:
        # Half at most: the page cache, which makes reading fetched files fast, lives from what is left.
        heap = max(LEAST_HEAP, min(rest - tasks * WORKER, memory // 2, MOST_HEAP))
    return Sizes(tasks, heap, memory)
