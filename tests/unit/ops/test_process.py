"""What the process tells of itself: memory with its children, the scratch disk, how late the event loop is."""

import asyncio
import subprocess
import sys
import time
from pathlib import Path

from prometheus_client import REGISTRY
from tests.support.waiting import eventually

from ingestd import __version__
from ingestd.ops import process

HUNGRY = "data = b'x' * 60_000_000; print('there', flush=True); input()"


def test_memory_is_counted_with_what_the_process_has_started_and_what_that_started() -> None:
    nested = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {HUNGRY!r}], check=False)"
    before = process.memory().get("other", 0)
    with subprocess.Popen([sys.executable, "-c", nested], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        grown = process.memory()["other"] - before
        child.communicate(b"\n")
    assert grown > 60_000_000
    assert process.memory()["daemon"] > 10_000_000
    eventually(lambda: process.memory().get("other", 0) < before + 60_000_000, "the child still counts")


def test_limits_disk_and_build_are_told(tmp_path: Path) -> None:
    process.expose(tmp_path / "not made yet")
    size = REGISTRY.get_sample_value("ingestd_scratch_bytes", {"what": "size"})
    used = REGISTRY.get_sample_value("ingestd_scratch_bytes", {"what": "used"})
    assert size is not None
    assert used is not None
    assert 0 < used <= size
    assert REGISTRY.get_sample_value("ingestd_memory_limit_bytes") == process.memory_limit() > 0
    python = ".".join(map(str, sys.version_info[:3]))
    assert REGISTRY.get_sample_value("ingestd_build_info", {"version": __version__, "python": python}) == 1


async def test_a_call_that_blocks_the_loop_shows_as_lag() -> None:
    def late() -> float:
        whole = REGISTRY.get_sample_value("ingestd_event_loop_lag_seconds_count") or 0
        quick = REGISTRY.get_sample_value("ingestd_event_loop_lag_seconds_bucket", {"le": "0.25"}) or 0
        return whole - quick

    before = late()
    watching = asyncio.create_task(process.watch_loop())
    await asyncio.sleep(0.5)
    time.sleep(1.2)
    await asyncio.sleep(0.1)
    watching.cancel()
    assert late() == before + 1
