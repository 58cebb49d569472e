"""`TableReader` on google-cloud-bigquery: small tables and queries, read whole into Arrow.

Rows come through `tabledata.list`, which costs nothing and needs no further service; a query is one job. Nothing is
changed by either, so a call that failed is simply made again.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from google.cloud import bigquery

from ingestd.gcp.errors import translated
from ingestd.gcp.threads import Threads
from ingestd.model.errors import BadInput
from ingestd.model.schema import Field
from ingestd.model.tables import TableName
from ingestd.ports import TableRows
from ingestd.retry import Retrier

PAGE_ROWS = 50_000
QUERY_TIMEOUT = 600.0


class BigQueryTables:
    def __init__(self, client: bigquery.Client, threads: Threads, retrier: Retrier, *, timeout: float = 60.0) -> None:
        self._client: Any = client
        self._threads = threads
        self._retrier = retrier
        self._timeout = timeout

    async def read(
        self, source: TableName | str, *, parameters: Sequence[Mapping[str, Any]] = (), most: int
    ) -> TableRows:
        name = str(source) if isinstance(source, TableName) else "a query"

        def fetch() -> TableRows:
            with translated("read", name):
                rows = self._list(source) if isinstance(source, TableName) else self._query(source, parameters)
                return _collected(rows, name, most)

        return await self._retrier.call(lambda: self._threads.run(_run, fetch), "bigquery.read", resource=name)

    def _list(self, name: TableName) -> Any:
        reference = bigquery.DatasetReference(name.project or self._client.project, name.dataset).table(name.table_id)
        whole = bigquery.DatasetReference(name.project or self._client.project, name.dataset).table(name.table)
        fields = self._client.get_table(whole, retry=None, timeout=self._timeout).schema
        return self._client.list_rows(
            reference, selected_fields=fields, page_size=PAGE_ROWS, retry=None, timeout=self._timeout
        )

    def _query(self, sql: str, parameters: Sequence[Mapping[str, Any]]) -> Any:
        configuration: dict[str, Any] = {"query": sql, "useLegacySql": False}
        if parameters:
            configuration |= {"parameterMode": "NAMED", "queryParameters": [dict(one) for one in parameters]}
        job = self._client.query(
            sql,
            job_config=bigquery.QueryJobConfig.from_api_repr({"query": configuration}),
            retry=None,
            job_retry=None,
            timeout=self._timeout,
        )
        return job.result(page_size=PAGE_ROWS, retry=None, job_retry=None, timeout=QUERY_TIMEOUT)


def _run(fetch: Callable[[], TableRows]) -> TableRows:
    return fetch()


def _collected(rows: Any, name: str, most: int) -> TableRows:
    import pyarrow as pa

    batches, size, schema = [], 0, None
    for batch in rows.to_arrow_iterable():
        size += batch.nbytes
        if size > most:
            raise BadInput(f"{name} has more than {most} bytes of rows, which is the most a side input may have")
        batches.append(batch)
        schema = batch.schema
    fields = tuple(Field.from_rest(field.to_api_repr()) for field in rows.schema)
    if schema is None:
        return TableRows(fields, rows.to_arrow(create_bqstorage_client=False))
    return TableRows(fields, pa.Table.from_batches(batches, schema))
