"""The scenarios, each a promise a user was given: what it needs, and how it is seen to hold.

The first four are the ones this tool was asked for: an asynchronous load, a window, routes after jobs, and success
files with their configuration. Each has tables and folders of its own, so all of them play at the same time.
"""

import asyncio
import gzip
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from ingestd.cli.acceptance.estate import Estate
from ingestd.cli.acceptance.stage import Stage, Unmet, check
from ingestd.model.jobs import JobKind

_COLUMNS = (("id", "INTEGER"), ("name", "STRING"))
_WINDOW_SECONDS = 10
_PREPARED_SECONDS = 20  # roomier: a file that comes late would be a batch of its own, with keys of its own
_FILES = 5
_DELETE = [{"Action": "delete"}]
_ROUTE_SECONDS = 60  # a new log sink may pass over what happens in its first minutes

Rule = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    promise: str
    play: Callable[[Stage], Awaitable[str]]
    """Answers what was seen, in a few words; raises `Unmet` when the promise does not hold."""
    tables: dict[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    rule: Callable[[Estate], Rule] | None = None
    routes: Callable[[Estate], list[Rule]] | None = None
    spark: bool = False


def _when(estate: Estate, folder: str) -> dict[str, str]:
    return {"Prefix": f"/{estate.arrivals}{folder}/", "Suffix": ".json"}


# An asynchronous load: nobody waits for the job, and the sources go when it is done.


def _async_rule(estate: Estate) -> Rule:
    dest = {"Table": estate.full("async")}
    return {"When": _when(estate, "case002"), "Async": True, "Dest": dest, "OnSuccess": _DELETE}


async def _async(stage: Stage) -> str:
    refs = [await stage.put(f"case002/dummy{n}.json", [{"id": n, "name": "async"}]) for n in (1, 2)]
    await stage.has("async", [(1, "async"), (2, "async")])
    await stage.gone(*refs)
    table = stage.estate.full("async")

    async def documents() -> list[str]:
        found = {name.rpartition("/")[2] for name in await stage.names(f"ops/journal/{table}/")}
        return sorted(found)

    async def complete() -> bool:
        return await documents() == ["dispatch-job.json", "dispatch.json", "tail-job.json"]

    await stage.until(complete, "the journal should hold both jobs and their actions", documents)
    explained = await stage.ingestd("explain", refs[0].url)
    phases = [one["phase"] for one in explained["history"]]
    check(phases == ["done"], f"explain should say done, and says {phases}")
    return "2 files, 2 jobs, sources deleted, journal and explain agree"


# A window: files of ten seconds load together, however often they are announced.


def _window_rule(estate: Estate) -> Rule:
    return {
        "When": _when(estate, "case003"),
        "Dest": {"Table": estate.full("window")},
        "Batch": {"Window": {"DurationInSec": _WINDOW_SECONDS}},
        "OnSuccess": _DELETE,
    }


async def _window(stage: Stage) -> str:
    await _early_in_a_window()
    refs = [await stage.put(f"case003/dummy{n}.json", [{"id": n, "name": "window"}]) for n in range(_FILES)]
    for ref in refs:
        if await stage.stat(ref):
            await stage.announce_again(ref)
    await stage.has("window", [(n, "window") for n in range(_FILES)])
    await stage.gone(*refs)

    async def ended() -> list[dict[str, Any]]:
        records = await stage.records("window")
        return records if sum(len(one["Files"]) for one in records) == _FILES else []

    records = await stage.until(ended, f"the journal should tell of {_FILES} files", lambda: stage.records("window"))
    check(len(records) < _FILES, f"{_FILES} files of one window were loaded by {len(records)} jobs")
    return f"{_FILES} files announced twice, {len(records)} load job(s), each row once"


async def _early_in_a_window(length: int = _WINDOW_SECONDS) -> None:
    left = length - time.time() % length
    if left < length / 2:
        await asyncio.sleep(left + 0.1)


# Routes: what follows jobs that are not ours.


def _routes_of(estate: Estate) -> list[Rule]:
    def dest(name: str) -> str:
        return rf".+:{estate.dataset}\.{estate.table(name)}$"

    export = {"Action": "export", "Request": {"DestURL": estate.url("out/route.json.gz")}}
    copy = {"Action": "copy", "Request": {"Dest": estate.full("route_copied")}}
    return [
        {"When": {"Dest": dest("route_queried"), "Type": "QUERY"}, "OnSuccess": [export]},
        {"When": {"Dest": dest("route_loaded"), "Type": "LOAD"}, "OnSuccess": [copy]},
    ]


async def _routes(stage: Stage) -> str:
    source = await stage.put("elsewhere/route.json", [{"id": 1, "name": "route"}])
    tries = 0
    while True:
        tries += 1
        await stage.job(
            JobKind.QUERY,
            {
                "query": "SELECT 1 AS id, 'route' AS name",
                "useLegacySql": False,
                "destinationTable": stage.destination("route_queried"),
                "writeDisposition": "WRITE_TRUNCATE",
            },
        )
        await stage.job(
            JobKind.LOAD,
            {
                "sourceUris": [source.url],
                "sourceFormat": "NEWLINE_DELIMITED_JSON",
                "schema": {"fields": [{"name": name, "type": kind} for name, kind in _COLUMNS]},
                "destinationTable": stage.destination("route_loaded"),
                "writeDisposition": "WRITE_TRUNCATE",
            },
        )
        if await _followed(stage, min(_ROUTE_SECONDS, stage.seconds_left)):
            break
        if stage.seconds_left <= 0:
            raise Unmet(
                f"no route ran after {tries} query and load jobs: do completions reach {stage.estate.completions}?"
            )
    exported = await stage.read(stage.estate.url("out/route.json.gz"))
    rows = [json.loads(line) for line in gzip.decompress(exported or b"").splitlines()]
    check(rows == [{"id": "1", "name": "route"}], f"the export should hold the query's row, and holds {rows}")
    again = f" (on try {tries})" if tries > 1 else ""
    return f"an export followed a query, a copy followed a load{again}"


async def _followed(stage: Stage, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if await stage.rows("route_copied") == [(1, "route")] and await stage.read(
            stage.estate.url("out/route.json.gz")
        ):
            return True
        await asyncio.sleep(1)
    return False


# Success files: a folder is loaded when it is complete, as its configuration says.


async def _success(stage: Stage) -> str:
    table = f"success/{stage.estate.dataset}/{stage.estate.table('success')}"
    await stage.put("success/_config/load.json", {"sourceFormat": "NEWLINE_DELIMITED_JSON"})
    await stage.put(f"{table}/_config/load.json", {"sourceFormat": "CSV", "skipLeadingRows": "1"})
    for n in (1, 2):
        await stage.put(f"{table}/batch/part-{n}.csv", f"id,name\n{n},success\n")
    await asyncio.sleep(2)
    found = await stage.rows("success")
    check(not found, f"nothing may be loaded before the success file, and there is {found}")
    await stage.put(f"{table}/batch/_SUCCESS", "")
    await stage.has("success", [(1, "success"), (2, "success")])

    async def told() -> bool:
        # An append-only table: `state` is among the columns of the last row about each batch.
        return any("done" in map(str, row) for row in await stage.rows("loads") or ())

    await stage.until(told, "the load-state table should tell of a batch that is done", lambda: stage.rows("loads"))
    return "2 files after their _SUCCESS, the nearest _config/load.json won, load state written"


async def _transform(stage: Stage) -> str:
    table = f"success/{stage.estate.dataset}/{stage.estate.table('transform')}"
    fields = [{"name": "id", "type": "INTEGER"}, {"name": "name", "type": "STRING"}]
    await stage.put(f"{table}/_config/external.json", {"sourceFormat": "CSV", "schema": {"fields": fields}})
    sql = "INSERT {dest_dataset}.{dest_table} SELECT id, UPPER(name) FROM temp_ext"
    await stage.put(f"{table}/_config/bq_transform.sql", sql)
    await stage.put(f"{table}/batch/part.csv", "1,transform\n")
    await stage.put(f"{table}/batch/_SUCCESS", "")
    await stage.has("transform", [(1, "TRANSFORM")])
    return "bq_transform.sql over temp_ext"


# Preparation: on Spark, and the same rule on BigQuery alone.


def _prepared_rule(engine: str) -> Callable[[Estate], Rule]:
    def rule(estate: Estate) -> Rule:
        return {
            "When": _when(estate, engine),
            "Engine": engine,
            "Dest": {
                "Table": estate.full(engine),
                "Transient": {"Dataset": estate.dataset},
                "UniqueColumns": ["id"],
                "OrderBy": ["version DESC"],
                "Transform": {"name": "CONCAT(UPPER(t.name), '!')"},
            },
            "Batch": {"Window": {"DurationInSec": _PREPARED_SECONDS}},
            "OnSuccess": _DELETE,
        }

    return rule


def _prepared(engine: str) -> Callable[[Stage], Awaitable[str]]:
    async def play(stage: Stage) -> str:
        await _early_in_a_window(_PREPARED_SECONDS)
        refs = []
        for version in (1, 2, 3):
            rows = [{"id": key, "name": f"v{version}", "version": version} for key in range(10)]
            refs.append(await stage.put(f"{engine}/part{version}.json", rows))
        await stage.has(engine, [(key, "V3!", 3) for key in range(10)])
        await stage.gone(*refs)
        return "3 files of 10 keys, one row each: the latest, transformed"

    return play


_VERSIONED = (*_COLUMNS, ("version", "INTEGER"))


# Trouble: a bad file is set aside and does not hold up the others; what was mended is tried again.


def _quarantine_rule(estate: Estate) -> Rule:
    return {
        "When": _when(estate, "quarantine"),
        "Dest": {"Table": estate.full("quarantine")},
        "Batch": {"Window": {"DurationInSec": _WINDOW_SECONDS}},
        "CorruptedFileURL": estate.url("ops/corrupted"),
        "OnSuccess": _DELETE,
    }


async def _quarantine(stage: Stage) -> str:
    await _early_in_a_window()
    good = await stage.put("quarantine/good.json", [{"id": 1, "name": "good"}])
    bad = await stage.put("quarantine/bad.json", '{"id": 2, "name": "cut o')
    await stage.has("quarantine", [(1, "good")])
    await stage.gone(good, bad)
    kept = stage.estate.url(f"ops/corrupted/{bad.name}")

    async def reason() -> bytes | None:
        return await stage.read(f"{kept}.reason.json")

    await stage.until(reason, f"{kept}.reason.json should say what is wrong")
    content = await stage.read(kept)
    check(content == b'{"id": 2, "name": "cut o', f"{kept} should be the bad file as it was, and is {content!r}")
    return "the good file is loaded, the bad one set aside with its reason"


def _replay_rule(estate: Estate) -> Rule:
    dest = {"Table": estate.full("replay")}
    return {"When": _when(estate, "replay"), "Dest": dest, "OnSuccess": _DELETE}


async def _replay(stage: Stage) -> str:
    ref = await stage.put("replay/file.json", [{"id": 1, "name": "replay", "colour": "red"}])

    async def failed() -> Any:
        return [one for one in await stage.records("replay") if one["Status"] == "failed"]

    await stage.until(
        failed, "a file that does not fit its table should fail its batch", lambda: stage.records("replay")
    )
    check(await stage.stat(ref) is not None, "a source may not be deleted when its load failed")
    await stage.add_column("replay", "colour", "STRING")
    replayed = await stage.ingestd("replay", ref.url, "--reason", "the column is there now")
    check(len(replayed) == 1, f"one batch should be opened again, and {len(replayed)} were")
    await stage.has("replay", [(1, "replay", "red")])
    await stage.gone(ref)
    return "failed, table mended, replayed, loaded once"


SCENARIOS = (
    Scenario("async", "asynchronous loads; sources go when the job is done", _async, {"async": _COLUMNS}, _async_rule),
    Scenario("window", "files of a window load together, once", _window, {"window": _COLUMNS}, _window_rule),
    Scenario("routes", "actions follow jobs that are not ours", _routes, {"route_loaded": _COLUMNS}, routes=_routes_of),
    Scenario("success", "a folder loads when its _SUCCESS is there", _success, {"success": _COLUMNS}),
    Scenario("transform", "a folder goes through its own SQL", _transform, {"transform": _COLUMNS}),
    Scenario(
        "spark",
        "Spark merges, transforms and leaves one row per key",
        _prepared("spark"),
        {"spark": _VERSIONED},
        _prepared_rule("spark"),
        spark=True,
    ),
    Scenario(
        "bigquery",
        "the same rule without Spark, in a transient table",
        _prepared("bigquery"),
        {"bigquery": _VERSIONED},
        _prepared_rule("bigquery"),
    ),
    Scenario("quarantine", "a bad file holds up nobody", _quarantine, {"quarantine": _COLUMNS}, _quarantine_rule),
    Scenario("replay", "what was mended is tried again", _replay, {"replay": _COLUMNS}, _replay_rule),
)
