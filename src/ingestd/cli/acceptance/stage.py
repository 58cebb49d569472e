"""What a scenario does and sees: files go in as users put them, rows and objects are looked at from outside.

Nothing here asks the daemon how it feels: every check reads the bucket, the tables, or what `ingestd` itself prints.
"""

import asyncio
import json
import sys
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ingestd.cli.acceptance.estate import Estate
from ingestd.model.jobs import JobKind, JobRef, JobRequest
from ingestd.model.objects import ObjectInfo, ObjectRef

if TYPE_CHECKING:
    from ingestd.gcp.connect import Clients
    from ingestd.gcp.provisioning import Provisioner

_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 3.0

Row = tuple[Any, ...]


class Unmet(Exception):  # noqa: N818 - a verdict about the daemon, not an error of the kit
    """A promise that was not kept; the message says what was expected and what was seen."""


class Stage:
    """One scenario's view of the run."""

    def __init__(
        self,
        estate: Estate,
        clients: "Clients",
        cloud: "Provisioner",
        *,
        config: Path,
        seconds: float,
        expected: dict[str, list[Row]],
    ) -> None:
        self.estate = estate
        self._clients = clients
        self._cloud = cloud
        self._config = config
        self._deadline = time.monotonic() + seconds
        self._expected = expected  # of the whole run: looked at again at the end

    # Files

    def ref(self, name: str) -> ObjectRef:
        """An object below the folder that is announced."""
        return ObjectRef(self.estate.bucket, f"{self.estate.arrivals}{name}")

    async def put(self, name: str, content: str | dict[str, Any] | list[dict[str, Any]]) -> ObjectRef:
        """A file as a producer leaves it: text as it is, rows as lines of JSON, a document as JSON."""
        if isinstance(content, list):
            content = "".join(f"{json.dumps(row)}\n" for row in content)
        elif isinstance(content, dict):
            content = json.dumps(content)
        ref = self.ref(name)
        await self._clients.store.create(ref, content.encode(), content_type="application/octet-stream")
        return ref

    async def stat(self, ref: ObjectRef) -> ObjectInfo | None:
        return await self._clients.store.stat(ref)

    async def read(self, url: str) -> bytes | None:
        ref = ObjectRef.parse(url)
        return (await self._clients.store.read(ref))[0] if await self.stat(ref) else None

    async def names(self, folder: str) -> list[str]:
        """Objects of the daemon's own, below a folder of its operations prefix, by their name there."""
        prefix = ObjectRef.parse(self.estate.url(folder))
        return [info.ref.name.removeprefix(prefix.name) async for info in self._clients.store.list(prefix)]

    async def records(self, table: str) -> list[dict[str, Any]]:
        """The journal's ended batches of one table."""
        folder = f"ops/journal/Done/{self.estate.full(table)}/"
        found = [await self.read(f"{self.estate.url(folder)}{name}") for name in await self.names(folder)]
        return [json.loads(one) for one in found if one is not None]

    async def announce_again(self, ref: ObjectRef) -> None:
        """The object's notification once more, as Cloud Storage may send it at any time."""
        from ingestd.gcp.notifications import announcements

        topic = self._cloud.topic_name(self.estate.notifications)
        for message in await asyncio.to_thread(announcements, self.estate.project, ref, topic):
            await self._clients.publisher.publish(message.topic, message.data, message.attributes)

    # Tables

    async def add_column(self, table: str, name: str, kind: str) -> None:
        await asyncio.to_thread(self._cloud.add_column, self.estate.dataset, self.estate.table(table), name, kind)

    async def rows(self, table: str) -> list[Row] | None:
        found = await asyncio.to_thread(self._cloud.rows, self.estate.dataset, self.estate.table(table))
        return None if found is None else sorted(found)

    async def has(self, table: str, rows: Sequence[Row]) -> None:
        """Wait until the table holds exactly these rows; they are counted again when everything is over."""
        wanted = sorted(rows)
        await self.until(lambda: self._same(table, wanted), f"{table} should have {wanted}", lambda: self.rows(table))
        self._expected[table] = wanted

    async def _same(self, table: str, wanted: list[Row]) -> bool:
        return await self.rows(table) == wanted

    async def job(self, kind: JobKind, configuration: dict[str, Any]) -> str:
        """Run a job that is not the daemon's; its id."""
        name = f"ingestd_acceptance_{self.estate.run}_{uuid.uuid4().hex}"
        ref = JobRef(self.estate.project, self.estate.location, name)
        warehouse = self._clients.warehouse
        job = await warehouse.insert_job(JobRequest(ref, kind, configuration))
        while not job.done:
            await asyncio.sleep(_FIRST_PAUSE)
            job = await warehouse.get_job(job.ref) or job
        if job.error is not None:
            raise Unmet(f"the kit's own {kind} job failed: {job.error.message}")
        return name

    def destination(self, table: str) -> dict[str, str]:
        """A table in BigQuery's REST form."""
        estate = self.estate
        return {"projectId": estate.project, "datasetId": estate.dataset, "tableId": estate.table(table)}

    # What operators type

    async def ingestd(self, *arguments: str) -> Any:
        """A command with the daemon's settings; its JSON."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "ingestd", *arguments, "--config", str(self._config), "--json"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
        if process.returncode:
            raise Unmet(f"`ingestd {arguments[0]}` ended with {process.returncode}: {err.decode().strip()}")
        return json.loads(out)

    # Waiting

    @property
    def seconds_left(self) -> float:
        return self._deadline - time.monotonic()

    async def until(
        self, done: Callable[[], Awaitable[Any]], what: str, seen: Callable[[], Awaitable[Any]] | None = None
    ) -> Any:
        """What `done` answers, as soon as it is true; out of time, what was to be and what is."""
        pause = _FIRST_PAUSE
        while True:
            if answer := await done():
                return answer
            if self.seconds_left <= 0:
                raise Unmet(f"{what}; seen: {await (seen or done)()}")
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, _LONGEST_PAUSE)

    async def gone(self, *refs: ObjectRef) -> None:
        async def left() -> list[str]:
            return [ref.url for ref in refs if await self.stat(ref) is not None]

        async def none_left() -> bool:
            return not await left()

        await self.until(none_left, "the sources should be deleted after the load", left)


def check(holds: bool, what: str) -> None:
    """A promise that has to hold now."""
    if not holds:
        raise Unmet(what)
