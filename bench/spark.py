"""Preparing batches on Spark, beside DuckDB and Polars doing the same work on the same files, and bare PySpark.

The work: newline-delimited JSON in, one row per key (a tenth are duplicates), one transformed column, Zstandard Parquet
out. 200 files of 5 MB, then 2,000 files of 50 KB. `ingestd` is the pipeline as the daemon runs it on its warm session:
every file judged, every row attributed to its file, in one pass; the others only convert. `bare PySpark` is the same
session reading the files with `spark.read.json` and dropping duplicates, as one would write it by hand.

Then what a batch of a single small file costs on the warm session, through the object store and back; and 20 bad files
among 500, where ingestd sets them aside in its one pass and loads once, beside a loop that loads, is told one bad file,
and loads again without it, on the same local cloud.

`python -m bench.spark` prints a table and, last, one line of JSON; `--quick` takes a tenth of the files.
"""

import asyncio
import json
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import structlog

from ingestd.formats.options import LoadOptions
from ingestd.gcp.connect import Clients, connect
from ingestd.localcloud.cloud import LocalCloud
from ingestd.model.clock import SystemClock
from ingestd.model.jobs import JobKind, JobRef, JobRequest, JobState
from ingestd.model.objects import FileVersion, ObjectRef
from ingestd.model.preparation import BadData, FileLayout, Prepared, PrepareRequest, Shaping
from ingestd.model.schema import Field, Type, schema_rest
from ingestd.model.tables import TableName
from ingestd.settings import Spark as SparkSettings
from ingestd.spark.files.read_task import Unit
from ingestd.spark.files.readers import ReadPlan
from ingestd.spark.files.scratch import Scratch
from ingestd.spark.preparer import SparkPreparer, Where
from ingestd.spark.session.engine import Engine
from ingestd.spark.session.masters import Files, Master, master
from ingestd.spark.session.session import Spark
from ingestd.spark.shape import pipeline
from ingestd.spark.start import open_engine
from ingestd.spark.warmup import warm_up
from ingestd.warehouse.blame import blames
from ingestd.warehouse.jobs import Completions, JobRunner

COLUMNS = (
    Field("id", Type.INT64),
    Field("user", Type.STRING),
    Field("country", Type.STRING),
    Field("amount", Type.FLOAT64),
    Field("at", Type.TIMESTAMP),
    Field("note", Type.STRING),
)
DDL = "id BIGINT, user STRING, country STRING, amount DOUBLE, at TIMESTAMP, note STRING"
DUCK = "{id: 'BIGINT', user: 'VARCHAR', country: 'VARCHAR', amount: 'DOUBLE', \"at\": 'TIMESTAMPTZ', note: 'VARCHAR'}"
POLARS = {
    "id": pl.Int64,
    "user": pl.String,
    "country": pl.String,
    "amount": pl.Float64,
    "at": pl.String,
    "note": pl.String,
}
SHAPING = Shaping(transform={"country": "UPPER(t.country)"}, unique_columns=("id",))
LEVEL = 1  # of Zstandard, for all of them: the one that the pipeline writes
NDJSON = {"sourceFormat": "NEWLINE_DELIMITED_JSON"}
WARM_UPS = 3  # as a daemon's session has them
_BAD = 25  # one in so many files
SMALL_TARGET, LARGE_TARGET, QUICK_TARGET, BARE_TARGET, OVERHEAD_TARGET = 1.2, 1.5, 2.0, 1.1, 0.15


@dataclass(frozen=True, slots=True)
class Corpus:
    name: str
    folder: Path
    paths: tuple[Path, ...]
    keys: int

    @property
    def size(self) -> int:
        return sum(path.stat().st_size for path in self.paths)


@dataclass(slots=True)
class Figures:
    seconds: dict[str, float] = field(default_factory=dict)
    rows: set[int] = field(default_factory=set)


def make(folder: Path, name: str, files: int, size: int) -> Corpus:
    """Files of about that size; every tenth row has the key of an earlier one."""
    chance = random.Random(7)
    place = folder / name
    place.mkdir()
    paths, keys = [], 0
    for number in range(files):
        rows, written = [], 0
        while written < size:
            if keys and chance.random() < 0.1:
                key = chance.randrange(keys)
            else:
                key, keys = keys, keys + 1
            row = (
                f'{{"id": {key}, "user": "user-{key % 9973}", "country": "{("de", "fr", "it", "pl")[key % 4]}", '
                f'"amount": {key % 10_000 / 4}, "at": "2026-01-{key % 28 + 1:02d}T{key % 24:02d}:00:00Z", '
                f'"note": "{key * 2654435761 % 2**32:08x} a line of text that is to be carried along {number}"}}\n'
            )
            rows.append(row)
            written += len(row)
        path = place / f"{number:05d}.json"
        path.write_text("".join(rows))
        paths.append(path)
    return Corpus(name, place, tuple(paths), keys)


def with_duckdb(corpus: Corpus, out: Path) -> int:
    """Defaults, all cores; the first row it meets of a key is kept, which is less than what we promise."""
    return duckdb_writes(f"read_json('{corpus.folder}/*.json', format = 'newline_delimited', columns = {DUCK})", out)


def duckdb_writes(source: str, out: Path) -> int:
    with duckdb.connect() as connection:
        connection.execute(
            f"COPY (SELECT DISTINCT ON (id) * REPLACE (upper(country) AS country) FROM {source}) "
            f"TO '{out}.parquet' (FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL {LEVEL})"
        )
        found = connection.execute(f"SELECT count(*) FROM '{out}.parquet'").fetchone()
    assert found is not None
    return int(found[0])


def with_polars(corpus: Corpus, out: Path) -> int:
    frame = pl.scan_ndjson(f"{corpus.folder}/*.json", schema=POLARS).with_columns(
        pl.col("country").str.to_uppercase(), pl.col("at").str.to_datetime("%Y-%m-%dT%H:%M:%SZ", time_zone="UTC")
    )
    frame.unique("id", keep="any").sink_parquet(f"{out}.parquet", compression="zstd", compression_level=LEVEL)
    return int(pl.scan_parquet(f"{out}.parquet").select(pl.len()).collect().item())


def with_pyspark(engine: Engine, corpus: Corpus, out: Path) -> int:
    with engine.tagged("bare", "default") as session:
        frame = session.read.schema(DDL).json(str(corpus.folder)).selectExpr("*", "upper(country) AS loud")
        frame = frame.drop("country").withColumnRenamed("loud", "country").dropDuplicates(["id"])
        writer = frame.write.option("compression", "zstd").option("parquet.compression.codec.zstd.level", str(LEVEL))
        writer.parquet(str(out))
        return session.read.parquet(str(out)).count()


def work_of(corpus: Corpus, cores: int, out: Path, options: Mapping[str, Any] = NDJSON) -> pipeline.Work:
    units = tuple(Unit(index, path.name, str(path), 0, path.stat().st_size) for index, path in enumerate(corpus.paths))
    return pipeline.Work(
        plan=ReadPlan(COLUMNS, LoadOptions.from_rest(dict(options))),
        units=units,
        destination=COLUMNS,
        shaping=SHAPING,
        policy=BadData.QUARANTINE_FILE,
        layout=FileLayout(),
        target=str(out),
        names=tuple(path.name for path in corpus.paths),
        order=tuple(range(len(units))),
        cores=cores,
    )


def with_ingestd(engine: Engine, cores: int, corpus: Corpus, out: Path) -> int:
    with engine.tagged("ingestd", "default") as session:
        made = pipeline.prepare(session, work_of(corpus, cores, out))
    assert not made.verdict.bad
    return made.rows[-1]


def compare(engine: Engine, cores: int, corpus: Corpus, runs: int) -> Figures:
    """Each engine in turn, several times round, so that what else the machine does meets all of them."""
    figures = Figures()
    engines: dict[str, Callable[[Path], int]] = {
        "ingestd": lambda out: with_ingestd(engine, cores, corpus, out),
        "bare PySpark": lambda out: with_pyspark(engine, corpus, out),
        "DuckDB": lambda out: with_duckdb(corpus, out),
        "Polars": lambda out: with_polars(corpus, out),
    }
    taken: dict[str, list[float]] = {name: [] for name in engines}
    for number in range(runs):
        for name, work in engines.items():
            out = corpus.folder.parent / f"out-{name.replace(' ', '-')}-{number}"
            began = time.perf_counter()
            figures.rows.add(work(out))
            taken[name].append(time.perf_counter() - began)
            shutil.rmtree(out, ignore_errors=True)
            out.with_suffix(".parquet").unlink(missing_ok=True)
    assert figures.rows == {corpus.keys}, f"{figures.rows} rows of {corpus.keys} keys"
    figures.seconds = {name: min(values) for name, values in taken.items()}
    return figures


async def one_file(spark: Spark, cores: int, clients: Clients, bucket: str, folder: Path, runs: int) -> float:
    """Seconds for a batch of one small file: fetched, prepared, uploaded, manifest written."""
    preparer = SparkPreparer(spark, clients.store, Scratch(folder, 1 << 30), Where(Files.LOCAL, cores))
    file = await put(clients, ObjectRef(bucket, "one/0.json"), b'{"id": 1, "user": "a", "country": "de"}\n' * 100)
    taken = []
    for number in range(runs):
        began = time.perf_counter()
        await preparer.prepare(request(f"one{number}", bucket, (file,)))
        taken.append(time.perf_counter() - began)
    return statistics.median(taken[runs // 2 :])


async def put(clients: Clients, ref: ObjectRef, data: bytes) -> FileVersion:
    generation = await clients.store.create(ref, data)
    return FileVersion(ref, generation, len(data))


def request(batch: str, bucket: str, files: tuple[FileVersion, ...]) -> PrepareRequest:
    folder = ObjectRef(bucket, f"staging/{batch}/1")
    return PrepareRequest(batch, 1, folder, files, NDJSON, COLUMNS, shaping=SHAPING)


@dataclass(frozen=True, slots=True)
class Trouble:
    loads: int
    seconds: float
    rows: int


async def bad_files(
    spark: Spark, cores: int, clients: Clients, bucket: str, folder: Path, many: int
) -> dict[str, Trouble]:
    """So many files, a twenty-fifth of them bad."""
    files = []
    for number in range(many):
        lines = [json.dumps({"id": number * 20 + n, "user": "u", "country": "de", "amount": n / 4}) for n in range(20)]
        if number % _BAD == 7:
            lines[5] = '{"id": "not a number", "user": 3'
        ref = ObjectRef(bucket, f"bad/{number:03d}.json")
        files.append(await put(clients, ref, "\n".join(lines).encode()))
    jobs = JobRunner(clients.warehouse, Completions(), SystemClock(), poll_every=timedelta(seconds=0.02))
    return {
        "ingestd": await _set_aside(spark, cores, clients, bucket, folder, jobs, tuple(files)),
        "one at a time": await _one_at_a_time(clients, jobs, files),
    }


async def _set_aside(
    spark: Spark,
    cores: int,
    clients: Clients,
    bucket: str,
    folder: Path,
    jobs: JobRunner,
    files: tuple[FileVersion, ...],
) -> Trouble:
    preparer = SparkPreparer(spark, clients.store, Scratch(folder, 1 << 30), Where(Files.LOCAL, cores))
    began = time.perf_counter()
    prepared: Prepared = await preparer.prepare(request("bad", bucket, files))
    assert len(prepared.bad) == len(files) // _BAD
    uris = [uri for output in prepared.outputs for uri in output.uris]
    job = await _load(clients, jobs, "prepared", 1, uris, prepared.format, dict(prepared.load_options))
    assert job.error is None
    return Trouble(1, time.perf_counter() - began, _rows(job))


async def _one_at_a_time(clients: Clients, jobs: JobRunner, files: list[FileVersion]) -> Trouble:
    left = [file.ref.url for file in files]
    began = time.perf_counter()
    for number in range(1, 100):
        job = await _load(clients, jobs, "loop", number, left, NDJSON["sourceFormat"], {})
        if job.error is None:
            return Trouble(number, time.perf_counter() - began, _rows(job))
        left.remove(min(blames(job, left)))
    raise AssertionError("more loads than bad files")


async def _load(
    clients: Clients, jobs: JobRunner, name: str, number: int, uris: list[str], kind: str, more: dict[str, Any]
) -> JobState:
    table = TableName(clients.warehouse.project, "bench", name)
    configuration = {
        "sourceUris": uris,
        "sourceFormat": kind,
        "destinationTable": table.rest,
        "schema": schema_rest(COLUMNS),
        "writeDisposition": "WRITE_APPEND",
        **more,
    }
    ref = JobRef(clients.warehouse.project, "US", f"{name}-{number}")
    return await jobs.run(lambda attempt: JobRequest(ref, JobKind.LOAD, configuration))


def _rows(job: JobState) -> int:
    return int(job.statistics["load"]["outputRows"])


async def over_the_wire(
    engine: Engine, where: Master, folder: Path, runs: int, many: int
) -> tuple[float, dict[str, Trouble]]:
    spark = Spark.over(engine)
    async with LocalCloud(folder / "cloud", "bench") as cloud:
        cloud.provision()
        async with connect("bench", environment=cloud.endpoints.environ()) as clients:
            bucket = "bench-spark"
            await asyncio.to_thread(_create, cloud, bucket)
            overhead = await one_file(spark, where.cores, clients, bucket, folder / "scratch", runs)
            return overhead, await bad_files(spark, where.cores, clients, bucket, folder / "scratch", many)


def _create(cloud: LocalCloud, bucket: str) -> None:
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import bigquery, storage

    options = {"project": "bench", "credentials": AnonymousCredentials()}
    storage.Client(**options, client_options={"api_endpoint": cloud.endpoints.storage}).create_bucket(bucket)
    bigquery.Client(**options, client_options={"api_endpoint": cloud.endpoints.bigquery}).create_dataset("bench")


@contextmanager
def warm_session() -> Iterator[tuple[Engine, Master, Path]]:
    """A session that is warm, where it runs, and a folder; quiet, and gone afterwards."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    with tempfile.TemporaryDirectory(prefix="ingestd-bench-", ignore_cleanup_errors=True) as folder:
        settings = SparkSettings(scratch=Path(folder) / "scratch")
        engine, where = open_engine(settings), master(settings)
        try:
            warm_up(engine, where, WARM_UPS)
            yield engine, where, Path(folder)
        finally:
            engine.close()


def show(name: str, corpus: Corpus, figures: Figures, target: float) -> dict[str, float]:
    print(f"\n{name}: {len(corpus.paths):,} files, {corpus.size / 1e6:,.0f} MB, {corpus.keys:,} keys")
    print(f"  {'':14}{'seconds':>9}{'MB/s':>8}{'x DuckDB':>11}")
    for engine, seconds in figures.seconds.items():
        pace, ratio = corpus.size / 1e6 / seconds, seconds / figures.seconds["DuckDB"]
        print(f"  {engine:14}{seconds:9.2f}{pace:8.0f}{ratio:11.2f}")
    ratio = figures.seconds["ingestd"] / figures.seconds["DuckDB"]
    bare = figures.seconds["ingestd"] / figures.seconds["bare PySpark"]
    print(f"  {ratio:.2f} times DuckDB (target ≤ {target}), {bare:.2f} times bare PySpark (target ≤ {BARE_TARGET})")
    return {f"{engine.replace(' ', '_').lower()}_s": round(value, 2) for engine, value in figures.seconds.items()} | {
        "x_duckdb": round(ratio, 2),
        "x_bare": round(bare, 2),
    }


def main(arguments: list[str]) -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    share = 200 if "--tiny" in arguments else 10 if "--quick" in arguments else 1
    runs = (1, 1, 2) if "--tiny" in arguments else (5, 6, 60)
    many = 50 if "--tiny" in arguments else 500
    folder = Path(tempfile.mkdtemp(prefix="ingestd-bench-"))
    settings = SparkSettings(scratch=folder / "scratch")
    where = master(settings)
    report: dict[str, Any] = {}
    try:
        large = make(folder, "large", 200 // share, 5_000_000)
        began = time.perf_counter()
        engine = open_engine(settings)
        opened = time.perf_counter() - began
        try:
            warm_up(engine, where, WARM_UPS)
            warm = time.perf_counter() - began - opened
            print(f"session up in {opened:.1f} s, warm after {warm:.1f} s more, {where.cores} cores")
            report["start_s"], report["warm_up_s"] = round(opened, 1), round(warm, 1)
            # The large ones first: a daemon lives for weeks, and Java's compiler is done within its first minutes.
            figures = compare(engine, where.cores, large, runs=runs[0])
            report["large"] = show("large files", large, figures, LARGE_TARGET if share == 1 else QUICK_TARGET)
            shutil.rmtree(large.folder)
            small = make(folder, "small", 2_000 // share, 50_000)
            figures = compare(engine, where.cores, small, runs=runs[1])
            report["small"] = show("small files", small, figures, SMALL_TARGET if share == 1 else QUICK_TARGET)
            overhead, trouble = asyncio.run(over_the_wire(engine, where, folder, runs[2], many))
            least = f"{overhead * 1000:.0f} ms (target ≤ {OVERHEAD_TARGET * 1000:.0f} ms)"
            print(f"\nbatch of one file on the warm session: {least}")
            report["one_file_s"] = round(overhead, 3)
            print(f"\n{many // _BAD} bad of {many} files")
            print(f"  {'':14}{'loads':>7}{'seconds':>9}{'rows':>9}")
            for name, one in trouble.items():
                print(f"  {name:14}{one.loads:7}{one.seconds:9.2f}{one.rows:9,}")
                report[f"bad_{name.replace(' ', '_')}"] = {"loads": one.loads, "s": round(one.seconds, 2)}
        finally:
            engine.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps(report))


if __name__ == "__main__":
    main(sys.argv[1:])
