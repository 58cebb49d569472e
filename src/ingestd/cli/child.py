"""The local cloud as a child process of `ingestd local`, so that neither slows the other down.

Invariant: the child never outlives this process (see `cloud.die_with`), and it is in a session of its own, so a Ctrl-C
reaches only the daemon, which stops the cloud after it has drained.
"""

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from ingestd.cli.errors import CommandError
from ingestd.localcloud.statefolder import Endpoints

_START_SECONDS = 60  # a busy machine may need half of it
_STOP_SECONDS = 15


@asynccontextmanager
async def cloud_process(
    state: Path, project: str, options: Sequence[str] = ()
) -> AsyncIterator[tuple[Process, Endpoints]]:
    """A provisioned local cloud, for as long as the block runs."""
    command = [sys.executable, "-m", "ingestd", "cloud", "--state", str(state), "--project", project, "--provision"]
    process = await asyncio.create_subprocess_exec(
        *command, *options, "--parent", str(os.getpid()), stdout=PIPE, start_new_session=True
    )
    try:
        await _ready(process)
        yield process, Endpoints.load(state)
    finally:
        await _stop(process)


async def _ready(process: Process) -> None:
    assert process.stdout is not None
    try:
        line = await asyncio.wait_for(process.stdout.readline(), _START_SECONDS)
    except TimeoutError:
        raise CommandError(f"the local cloud did not start within {_START_SECONDS} s") from None
    if not line:  # it ended, and said why on stderr, which is ours too
        code = await process.wait()
        raise CommandError(f"the local cloud did not start (exit code {code}); its message is above")


async def watch(process: Process) -> None:
    """Raise when the cloud ends while it is still needed."""
    code = await process.wait()
    raise CommandError(f"the local cloud ended unexpectedly (exit code {code})")


async def _stop(process: Process) -> None:
    if process.returncode is None:
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), _STOP_SECONDS)
        except TimeoutError:
            process.kill()
            await process.wait()
