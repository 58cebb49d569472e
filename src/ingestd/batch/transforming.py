"""Directories whose rows come out of a Spark SQL query over the view `temp_ext`, and are loaded from what it selects.

For data that BigQuery cannot read as it is, or should not. The statement's rows are prepared files like any others: an
attempt counts when its manifest is pinned in the record, and its loads commit at once (see `prepared`).
"""

from typing import Any

from ingestd.batch.prepared import PreparedLoading, batch_folder
from ingestd.batch.sources import Looked
from ingestd.model.errors import BadInput, Fatal
from ingestd.model.preparation import BadData, Prepared, PrepareRequest

TEMP_EXT = "temp_ext"


class SparkTransforming(PreparedLoading):
    def _able(self) -> None:
        if self._parts.statements is None:
            raise Fatal("spark_transform.sql needs Spark, which this daemon runs without (settings: spark)")

    async def _made(self, request: PrepareRequest) -> Prepared:
        assert self._parts.statements is not None
        assert self._record.success is not None
        made = await self._parts.statements.query(over_temp_ext(self._record.success.sql), request)
        if gone := [request.files[bad.index].ref.url for bad in made.bad if bad.missing]:
            raise BadInput(f"{len(gone)} file(s) of the directory are gone or were overwritten, e.g. {gone[0]}")
        return made

    async def _asked(self, attempt: int, wanted: list[int]) -> PrepareRequest:
        record = self._record
        assert record.success is not None
        reading: dict[str, Any] = dict(record.success.external)
        fields = tuple((reading.pop("schema", None) or {}).get("fields") or ())
        return PrepareRequest(
            batch=record.event_id,
            attempt=attempt,
            folder=batch_folder(self._parts.settings.staging, record) / f"{attempt}/",
            files=tuple(record.files[index] for index in wanted),
            load=reading if fields else {**reading, "autodetect": True},
            schema=fields,
            bad_data=BadData.FAIL,
        )

    async def _seen(self, indexes: list[int]) -> Looked:
        return Looked()  # the directory was looked at when it was pinned


def over_temp_ext(sql: str) -> str:
    """The statement, for which the batch's view is called `temp_ext`; a WITH of its own stays its own."""
    statement = sql.rstrip().rstrip(";")
    return f"WITH {TEMP_EXT} AS (SELECT * FROM batch)\nSELECT * FROM (\n{statement}\n)"  # noqa: S608 - the operator's own SQL
