"""The few statements that publish numbered rows: enough SQL for `PlainBigQuery`, and not one form more.

It knows what `warehouse.statements` writes: a SELECT from one table with conditions on `MOD(id, n)`, one row per key,
as a query with a destination, an INSERT or a MERGE, and the count of what fits nowhere. Anything else is refused, so
that a new kind of statement is noticed. `test_seeds` holds the same scenarios to a BigQuery that really reads SQL.
"""

import re
from collections import Counter
from typing import TYPE_CHECKING

from ingestd.formats.errors import BigQueryError

if TYPE_CHECKING:
    from tests.support.sim.plain_bigquery import Job, PlainBigQuery

_TABLE = re.compile(r"FROM `[^`]*?([^.`]+)[.]([^.`]+)`")
_INTO = re.compile(r"^(INSERT|MERGE) INTO `[^`]*?([^.`]+)[.]([^.`]+)`")
_TEST = re.compile(r"[(]MOD[(]id, ([0-9]+)[)] = ([0-9]+)[)] IS (NOT )?TRUE")


def run(core: "PlainBigQuery", job: "Job") -> None:
    """Carry the statement out; raises what BigQuery would."""
    configuration = job.configuration["query"]
    sql = configuration["query"]
    source = _TABLE.search(sql)
    if source is None:
        raise BigQueryError("invalidQuery", f"not understood: {sql}")
    found = core.find({"datasetId": source[1], "tableId": source[2]}).rows
    rows = Counter({number: times for number, times in found.items() if _fits(sql, number)})
    if "QUALIFY ROW_NUMBER()" in sql:
        rows = Counter(dict.fromkeys(rows, 1))
    if sql.startswith("SELECT COUNT(*) AS unmatched"):
        job.answer = {"unmatched": rows.total()}
        return
    into = _INTO.match(sql)
    if into is None:
        core.destination(configuration).rows.update(rows)
        job.outcome = {"query": {}}
        return
    target = core.find({"datasetId": into[2], "tableId": into[3]}).rows
    if into[1] == "MERGE":
        if any(times > 1 for times in rows.values()):
            raise BigQueryError("invalidQuery", "UPDATE/MERGE must match at most one source row for each target row")
        rows = rows - Counter(dict.fromkeys(target, 1))
    target.update(rows)
    job.outcome = {"query": {"numDmlAffectedRows": str(rows.total())}}


def _fits(sql: str, number: int) -> bool:
    return all((number % int(one[1]) == int(one[2])) is not bool(one[3]) for one in _TEST.finditer(sql))
