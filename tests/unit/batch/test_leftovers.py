"""What the staging sweep takes away: prepared files that no running batch has, and nothing that is not ours."""

from datetime import UTC, datetime, timedelta

from tests.support.memory_store import MemoryStore

from ingestd.batch.journal import Journal
from ingestd.batch.leftovers import Leftovers
from ingestd.model.objects import ObjectRef, event_id


class Clock:
    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC)

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, pause: timedelta | float) -> None:
        raise AssertionError("nobody waits here")


async def test_only_prepared_files_are_collected_whatever_else_lies_there() -> None:
    """Somebody may point `staging_url` at a folder, or a whole bucket, that has other things in it."""
    clock = Clock()
    store = MemoryStore(clock)
    batch = event_id("a file")
    ours = (f"{batch}/1/run-0a/rows-00000.parquet", f"{batch}/2/manifest.json", f"{batch}/spark-00002/manifest.json")
    theirs = ("report.csv", "2026/11/sales.csv", "20261116/1/sales.csv", f"{batch}/report.csv", "exports/1/run-0/f")
    for name in ours + theirs:
        store.put(ObjectRef("ops", name), b"x")
    journal = Journal(store, ObjectRef("ops", "journal"), clock, owner="me", lease=timedelta(seconds=60))
    leftovers = Leftovers(store, ObjectRef("ops", ""), journal, clock, every=timedelta(hours=1))
    assert await leftovers.collect() == 3
    assert sorted([info.ref.name async for info in store.list(ObjectRef("ops", ""))]) == sorted(theirs)
