"""A million files at once, and Cloud Storage that does not take any of them for a while: how much memory that needs.

The daemon's own intake and windows on virtual time, as in `bench.windows`. While shards cannot be written, pulling has
to pause at the configured cap (`intake.max_messages`), and leases have to lapse rather than memory grow. Afterwards
every file has to become durable. Memory is the process's resident size, less what stands for Cloud Storage.

`python -m bench.backlog` prints a table and, last, one line of JSON.
"""

import asyncio
import gc
import json
import logging
import resource
import sys
from pathlib import Path

import structlog
from tests.support.virtual_time import VirtualLoop

from bench.windows import PROJECT, WINDOWS, Deployment, ended, in_virtual_time
from ingestd.model.objects import ObjectRef

FILES = 1_000_000
CAP = 5_000  # messages in flight, the default of `intake.max_messages`
STALL = 900.0  # seconds for which no shard can be written
TARGET = 400  # MiB above an idle daemon, for everything


def resident() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


async def backlog(loop: VirtualLoop) -> dict[str, float]:
    setup = Deployment(loop, files=FILES // WINDOWS)
    messages = setup.messages(mixed=True)
    write, gate = setup.store.create, asyncio.Event()

    async def held_back(ref: ObjectRef, *args: object, **options: object) -> object:
        if "/shards/" in ref.name or ref.name.startswith("batch/"):
            await gate.wait()
        return await write(ref, *args, **options)  # type: ignore[arg-type]

    setup.store.create = held_back  # type: ignore[method-assign,assignment]
    daemon = asyncio.create_task(setup.app.run())
    await asyncio.sleep(1)
    gc.collect()
    before, most = resident(), 0
    desk = setup.app.pullers[0].desk
    setup.notifications.put(messages)
    until = loop.time() + STALL
    while loop.time() < until:
        await asyncio.sleep(1)
        most = max(most, desk.in_flight)
    assert setup.notifications.acked == 0, "something was acknowledged that is not durable"
    stalled = resident()
    gate.set()
    peak = stalled
    while setup.notifications.acked < FILES:
        await asyncio.sleep(5)
        most = max(most, desk.in_flight)
        peak = max(peak, resident())
    stored = sum(
        len(setup.store.content(ObjectRef(f"{PROJECT}-ops", name)))
        for name in setup.store.names(f"{PROJECT}-ops", "batch/")
    )
    await ended(daemon)
    return {
        "files": FILES,
        "most_in_flight": most,
        "cap": CAP,
        "stalled_mib": round(stalled - before, 1),
        "collected_mib": round(peak - before - stored / 2**20, 1),
    }


def main() -> int:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    found = in_virtual_time(backlog)
    met = found["most_in_flight"] <= CAP and found["collected_mib"] <= TARGET
    print(
        f"{FILES:,} files for {WINDOWS} windows; storage stands still for {STALL / 60:.0f} minutes, "
        "then all become durable\n"
    )
    print(f"  most messages in flight {found['most_in_flight']:>12,}   cap {CAP:,}")
    print(f"  memory while it stands still {found['stalled_mib']:>7,.0f} MiB above an idle daemon")
    verdict = "met" if met else "MISSED"
    print(f"  memory with all collected {found['collected_mib']:>10,.0f} MiB   target {TARGET}: {verdict}")
    print(json.dumps({**found, "target_met": met}))
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
