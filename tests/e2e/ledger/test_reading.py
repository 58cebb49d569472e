"""Questions to the load-state table, through Google's client."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.support.records import START, done, failed, file, record

from ingestd.batch.content import Fate, Load, Progress, SetAside
from ingestd.gcp.connect import connect
from ingestd.ledger.columns import row_of, uri_of
from ingestd.ledger.reading import LoadStateReader
from ingestd.ledger.table import LoadStateTable
from ingestd.model.clock import SystemClock
from ingestd.model.tables import parse_table

pytestmark = pytest.mark.usefixtures("emulators")
LONG_AGO = START - timedelta(days=1)


def row(one: Any) -> dict[str, Any]:
    return row_of(one, replica="r", recorded=datetime.now(UTC))


async def test_the_latest_state_counts_and_a_repeated_row_counts_once(dataset: str) -> None:
    good, bad, halfway = file("x/good", 5), file("x/bad", 6), (file("x/in", 7), file("x/out", 8))
    half = Progress(loads=(Load(1, (0,), 2, 10),), aside={1: SetAside(Fate.FAILED, "no")}, jobs=1)
    async with connect("test-project") as clients:
        name = parse_table(f"test-project.{dataset}.loads")
        table = LoadStateTable(clients.warehouse, name, location="US")
        reader = LoadStateReader(clients.warehouse, name, SystemClock())
        assert await reader.batches(since=LONG_AGO) == [], "a table that is not there has no answers"
        await table.ensure()
        ended = row(done(good))
        await table.insert([row(record(good)), ended, row(failed(bad)), row(failed(*halfway, rows=2, progress=half))])
        await clients.warehouse.insert_rows(name, [ended], ["told again, much later"])

        states = {one.batch_key.partition("#")[0]: one.state for one in await reader.batches(since=LONG_AGO)}
        assert states == {"b/x/good": "done", "b/x/bad": "failed", "b/x/in": "failed"}
        assert [one.batch_key for one in await reader.batches(since=LONG_AGO, state="done", rule="r")] == ["b/x/good#5"]
        assert await reader.batches(since=START + timedelta(days=1)) == []
        (whole,) = await reader.tables(since=LONG_AGO)
        assert (whole.batches_done, whole.batches_failed, whole.rows_loaded) == (1, 2, 4)
        ((generation, batch),) = await reader.of_file(good.ref, since=LONG_AGO)
        assert (generation, batch.state, batch.rows_loaded) == (5, "done", 2)

        asked = [uri_of(one) for one in (good, bad, *halfway, file("x/never", 9))]
        assert await reader.loaded(asked, since=LONG_AGO) == {
            uri_of(good): True,
            **dict.fromkeys(map(uri_of, halfway), False),  # a part of it is in the table
        }
