"""`insert`: stream rows, given or selected, into a table.

Each row's insert id derives from batch, step and position, so a repeated call within BigQuery's memory of ids adds
nothing. A repeated statement is adopted by its job id and yields the same rows in the same order.
"""

import base64
import datetime as dt
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

import orjson

from ingestd.actions.context import ActionContext, Outcome, Step, idempotency_key
from ingestd.actions.jobs import create_from_template
from ingestd.actions.query import run_query, statement
from ingestd.model.errors import BadInput
from ingestd.model.tables import TableName
from ingestd.rules.actions import InsertRequest

PAGE = 10_000  # rows of a statement held at once
MAX_ROWS = 500
MAX_BYTES = 8 * 1024 * 1024  # BigQuery takes 10 MB per request, envelope included


async def run(ctx: ActionContext, step: Step, request: InsertRequest) -> Outcome:
    dest = ctx.table(request.dest, request.project_id)
    key = idempotency_key(ctx, step)
    count = 0
    async for page in _pages(ctx, step, request, dest):
        if count == 0 and request.template:
            await create_from_template(ctx, dest, ctx.table(request.template))
        for start, part in chunks(page):
            ids = [f"{key}-{count + start + index}" for index in range(len(part))]
            await ctx.warehouse.insert_rows(dest, part, ids)
        count += len(page)
    return Outcome({"InsertedRows": count}, details={"rows": count, "table": str(dest)})


async def _pages(
    ctx: ActionContext, step: Step, request: InsertRequest, dest: TableName
) -> AsyncIterator[list[dict[str, Any]]]:
    """The rows, a page at a time: a statement may select more than fits into memory."""
    if request.data is not None:
        if rows := _given(request.data):
            yield rows
        return
    sql = await statement(ctx, step, request)
    job = await run_query(ctx, step, {"query": sql, "useLegacySql": request.use_legacy}, None, dest)
    start = 0
    while rows := [_json_row(row) for row in await ctx.warehouse.rows(job.ref, limit=PAGE, start=start)]:
        yield rows
        start += len(rows)
        if len(rows) < PAGE:
            return


def chunks(rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[int, list[Mapping[str, Any]]]]:
    """Rows in requests of bounded count and size, each with the position of its first row."""
    start, size, part = 0, 0, list[Mapping[str, Any]]()
    for index, row in enumerate(rows):
        length = len(orjson.dumps(row, default=str))
        if part and (len(part) >= MAX_ROWS or size + length > MAX_BYTES):
            yield start, part
            start, size, part = index, 0, []
        part.append(row)
        size += length
    if part:
        yield start, part


def _given(data: Any) -> list[dict[str, Any]]:
    """`Data` as rows: a mapping, a list of them, or either as JSON (also one document per line)."""
    if isinstance(data, str):
        data = _parsed(data)
    rows = data if isinstance(data, list | tuple) else [data]
    for index, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise BadInput(f"insert: row {index} of Data is {type(row).__name__}, not a mapping of columns")
    return [_json_row(row) for row in rows]


def _parsed(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        pass
    try:
        return [orjson.loads(line) for line in text.splitlines() if line.strip()]
    except orjson.JSONDecodeError as error:
        raise BadInput(f"insert: Data is not JSON: {error}") from error


def _json_row(row: Mapping[str, Any]) -> dict[str, Any]:
    return {str(key): _json_value(value) for key, value in row.items()}


def _json_value(value: Any) -> Any:
    """A query's value as `insertAll` takes it."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, dt.datetime | dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, Mapping):
        return _json_row(value)
    if isinstance(value, list | tuple):
        return [_json_value(item) for item in value]
    return value
