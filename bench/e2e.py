"""The whole path, upload to rows to sources gone: what a file costs the daemon, and how long it takes.

A daemon as users start it (`ingestd run`) beside a local cloud in this process. Files of one row each are written over
several tables, once for every kind of work: a window with `delete`, without post-action, with `move`; `_SUCCESS`
folders; a rule that Spark prepares. The daemon's CPU time is its own, user and system, by `/proc`; what its JVM used is
beside it. Latency is counted from when the last window is due and its grace over (for `_SUCCESS`: from the last success
file). Beside it stands the floor: one load job per table over the same files, and nothing else.

CPU time per file is what to compare between runs: seconds on a busy machine say little.

`python -m bench.e2e [--files N] [--tables N] [--bytes N] [--window S] [--only delete,none,…]` prints a table and, last,
one line of JSON.
"""

import argparse
import json
import logging
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import structlog
import yaml
from google.auth.credentials import AnonymousCredentials
from google.cloud import bigquery

from bench.success import PROJECT, local_cloud
from ingestd.localcloud.cloud import LocalCloud
from ingestd.localcloud.storage.model import ListQuery

TRIGGER, OPS, DATASET = f"{PROJECT}-trigger", f"{PROJECT}-ops", "e2e"
FOLDER = 20  # files of a `_SUCCESS` folder
KINDS = ("delete", "none", "move", "success", "spark")
CPU_TARGETS = {"delete": 400, "none": 250, "move": 400, "success": 400, "spark": 400}  # microseconds per file
ROWS_TARGET, GONE_TARGET = 1.0, 3.0  # seconds beyond window and grace
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Sizes:
    files: int
    tables: int
    size: int
    window: int
    grace: float
    patience: float


@dataclass(frozen=True, slots=True)
class Figures:
    kind: str
    files: int
    cpu_us_per_file: float
    jvm_us_per_file: float
    upload_seconds: float
    rows_after: float
    gone_after: float | None  # None: nothing was to go
    rss_mib: float


class Daemon:
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process

    def cpu(self) -> float:
        """Seconds of CPU that the process itself has used."""
        return _cpu(self.process.pid)

    def jvm_cpu(self) -> float:
        """The same of its descendants: Spark's JVM and that JVM's Python workers."""
        return sum(_cpu(pid, with_ended=True) for pid in _descendants(self.process.pid))

    def rss(self) -> float:
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * resource.getpagesize() / 2**20


def _cpu(pid: int, *, with_ended: bool = False) -> float:
    """`with_ended`: also of its children that have ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return 0.0
    return sum(map(int, fields[11:15] if with_ended else fields[11:13])) / _TICKS


def _descendants(pid: int) -> Iterator[int]:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except FileNotFoundError:
        return
    for child in children:
        yield int(child)
        yield from _descendants(int(child))


def rules(kinds: list[str], seconds: int) -> list[dict[str, Any]]:
    def rule(kind: str, **more: Any) -> dict[str, Any]:
        return {
            "When": {"Prefix": f"/{kind}/", "Suffix": ".json"},
            "Dest": {"Pattern": f"/{kind}/(\\w+)/", "Table": f"{DATASET}.{kind}_$1", **more.pop("dest", {})},
            "Batch": {"Window": {"DurationInSec": seconds}},
            **more,
        }

    move = {"Action": "move", "Request": {"DestURL": f"gs://{OPS}/moved"}}
    every = {
        "delete": rule("delete", OnSuccess=[{"Action": "delete"}]),
        "none": rule("none"),
        "move": rule("move", OnSuccess=[move]),
        "spark": rule("spark", OnSuccess=[{"Action": "delete"}], dest={"UniqueColumns": ["id"]}),
    }
    return [every[kind] for kind in kinds if kind in every]


@contextmanager
def daemon(cloud: LocalCloud, folder: Path, kinds: list[str], sizes: Sizes) -> Iterator[Daemon]:
    cloud.storage.write(f"{PROJECT}-config", "rules/e2e.json", json.dumps(rules(kinds, sizes.window)).encode())
    settings = folder / "settings.yaml"
    document = {
        "project": PROJECT,
        "rules": {"url": f"gs://{PROJECT}-config/rules"},
        "success": {"conventions": [{"bucket": TRIGGER, "prefix": "success/", "root": "success"}]},
        "windows": {"grace": f"{sizes.grace}s"},
        "http": {"host": "127.0.0.1", "port": 0},
        "logging": {"format": "json"},
    }
    settings.write_text(yaml.safe_dump(document))
    log = folder / "daemon.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "ingestd", "run", "--config", str(settings)],
            env={**os.environ, **cloud.endpoints.environ()},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        until(lambda: "daemon.started" in log.read_text() or process.poll() is not None, 120, "the daemon's start")
        assert process.poll() is None, "the daemon ended"
        yield Daemon(process)
    except BaseException:
        print(log.read_text()[-4000:], file=sys.stderr)
        raise
    finally:
        process.terminate()
        process.wait(60)


def until(done: Callable[[], Any], patience: float, what: str, pause: float = 0.05) -> float:
    """When it was so first, as Unix time."""
    deadline = time.monotonic() + patience
    while not done():
        if time.monotonic() > deadline:
            raise SystemExit(f"{what}: not after {patience:g} s")
        time.sleep(pause)
    return time.time()


def table_of(kind: str, number: int) -> str:
    return f"{kind}_t{number:02d}"


def make_tables(cloud: LocalCloud, kinds: list[str], tables: int) -> None:
    metadata = cloud.bigquery.metadata
    metadata.insert_dataset(PROJECT, {"datasetReference": {"projectId": PROJECT, "datasetId": DATASET}})
    fields = [{"name": "id", "type": "INTEGER"}, {"name": "name", "type": "STRING"}]
    for kind in (*kinds, "floor"):
        for number in range(tables):
            reference = {"datasetId": DATASET, "tableId": table_of(kind, number)}
            metadata.insert_table(PROJECT, DATASET, {"tableReference": reference, "schema": {"fields": fields}})


def upload(cloud: LocalCloud, kind: str, sizes: Sizes) -> float:
    """Write the files; when the last was created, as Unix time."""
    last = 0.0
    for number in range(sizes.files):
        if kind == "success":
            batch, table = number // FOLDER, number // FOLDER % sizes.tables
            folder = f"success/{DATASET}/{table_of(kind, table)}/incremental/b{batch:06d}"
            data = f"{number},".ljust(sizes.size, "x")
            cloud.storage.write(TRIGGER, f"{folder}/part-{number:07d}.csv", data.encode())
            if (number + 1) % FOLDER == 0 or number + 1 == sizes.files:
                last = cloud.storage.write(TRIGGER, f"{folder}/_SUCCESS", b"").created / 1e6
        else:
            name = f"{kind}/t{number % sizes.tables:02d}/part-{number:07d}.json"
            empty = json.dumps({"id": number, "name": ""})
            data = json.dumps({"id": number, "name": "x" * max(0, sizes.size - len(empty))})
            last = cloud.storage.write(TRIGGER, name, data.encode()).created / 1e6
    return last


def rows(cloud: LocalCloud, kind: str, tables: int) -> int:
    metadata = cloud.bigquery.metadata
    return sum(
        int(metadata.get_table(PROJECT, DATASET, table_of(kind, number)).get("numRows", 0)) for number in range(tables)
    )


def empty(cloud: LocalCloud, bucket: str, prefix: str) -> bool:
    return not cloud.storage.objects.list(bucket, ListQuery(prefix=prefix, max_results=1)).items


def settled(cloud: LocalCloud) -> bool:
    return empty(cloud, OPS, "journal/Running/") and empty(cloud, OPS, "batch/")


def measure(cloud: LocalCloud, running: Daemon, kind: str, sizes: Sizes) -> Figures:
    cpu, jvm, began = running.cpu(), running.jvm_cpu(), time.monotonic()
    last = upload(cloud, kind, sizes)
    uploaded = time.monotonic() - began
    due = last if kind == "success" else last - last % sizes.window + sizes.window + sizes.grace
    loaded = until(lambda: rows(cloud, kind, sizes.tables) >= sizes.files, sizes.patience, f"rows of {kind}")
    goes = kind in ("delete", "move", "spark")
    gone = until(lambda: empty(cloud, TRIGGER, f"{kind}/"), sizes.patience, f"sources of {kind}") if goes else None
    until(lambda: settled(cloud), sizes.patience, f"end of {kind}")
    return Figures(
        kind=kind,
        files=sizes.files,
        cpu_us_per_file=round((running.cpu() - cpu) / sizes.files * 1e6, 1),
        jvm_us_per_file=round((running.jvm_cpu() - jvm) / sizes.files * 1e6, 1),
        upload_seconds=round(uploaded, 2),
        rows_after=round(loaded - due, 2),
        gone_after=None if gone is None else round(gone - due, 2),
        rss_mib=round(running.rss(), 1),
    )


@contextmanager
def bigquery_client(cloud: LocalCloud) -> Iterator[bigquery.Client]:
    options = {"api_endpoint": cloud.endpoints.bigquery}
    client = bigquery.Client(project=PROJECT, credentials=AnonymousCredentials(), client_options=options)  # type: ignore[no-untyped-call]
    try:
        yield client
    finally:
        client.close()


def check(client: bigquery.Client, kind: str, sizes: Sizes) -> None:
    """Every row once, in the table it belongs to."""
    parts = [f"SELECT id FROM `{DATASET}.{table_of(kind, number)}`" for number in range(sizes.tables)]
    (row,) = client.query(f"SELECT COUNT(*), COUNT(DISTINCT id) FROM ({' UNION ALL '.join(parts)})").result()
    if tuple(row.values()) != (sizes.files, sizes.files):
        raise SystemExit(f"{kind}: {row[0]} rows, {row[1]} of them different, where {sizes.files} were written")


def floor(cloud: LocalCloud, client: bigquery.Client, sizes: Sizes) -> float:
    """Seconds of one load job per table, all at once, over the files of the rule without post-action."""
    config = bigquery.LoadJobConfig(source_format="NEWLINE_DELIMITED_JSON")
    per_table = [
        [one.name for one in cloud.storage.glob(TRIGGER, f"none/t{number:02d}/*")] for number in range(sizes.tables)
    ]
    began = time.monotonic()
    jobs = [
        client.load_table_from_uri(
            [f"gs://{TRIGGER}/{name}" for name in names], f"{DATASET}.{table_of('floor', number)}", job_config=config
        )
        for number, names in enumerate(per_table)
        if names
    ]
    for job in jobs:
        job.result()
    return round(time.monotonic() - began, 2)


def report(figures: list[Figures], floor_seconds: float | None, sizes: Sizes) -> None:
    print(f"{sizes.files:,} files of {sizes.size:,} B over {sizes.tables} tables, window {sizes.window} s\n")
    print(
        f"{'':10}{'CPU/file':>10}{'target':>8}{'':8}{'JVM/file':>10}{'upload':>9}{'last row':>10}{'gone':>8}{'RSS':>9}"
    )
    met: dict[str, bool] = {}
    for one in figures:
        target = CPU_TARGETS[one.kind]
        met[one.kind] = one.cpu_us_per_file <= target
        gone = "" if one.gone_after is None else f"{one.gone_after:.1f} s"
        print(
            f"{one.kind:10}{one.cpu_us_per_file:>7.0f} µs{target:>8}{'' if met[one.kind] else '  MISSED':8}"
            f"{one.jvm_us_per_file:>7.0f} µs{one.upload_seconds:>7.1f} s{one.rows_after:>8.1f} s{gone:>8}"
            f"{one.rss_mib:>5.0f} MiB"
        )
    print(
        f"\nbeyond window and grace: target {ROWS_TARGET:g} s until the last row, {GONE_TARGET:g} s until all is gone"
    )
    if floor_seconds is not None:
        print(f"floor, one direct load job per table over the same files: {floor_seconds:.2f} s")
    document = {
        "benchmark": "e2e",
        **{key: value for key, value in asdict(sizes).items() if key != "patience"},
        "runs": {one.kind: asdict(one) for one in figures},
        "floor_seconds": floor_seconds,
        "cpu_target_met": met,
    }
    print(json.dumps(document))


def options(arguments: list[str]) -> tuple[Sizes, list[str]]:
    parser = argparse.ArgumentParser(prog="python -m bench.e2e")
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--tables", type=int, default=10)
    parser.add_argument("--bytes", type=int, default=1_000)
    parser.add_argument("--window", type=int, default=10, help="seconds")
    parser.add_argument("--grace", type=float, default=2.0, help="seconds")
    parser.add_argument("--patience", type=float, default=600.0, help="seconds after which a run has failed")
    parser.add_argument("--only", default=",".join(KINDS), help=f"some of {','.join(KINDS)}")
    given = parser.parse_args(arguments)
    kinds = [kind for kind in given.only.split(",") if kind]
    if unknown := set(kinds) - set(KINDS):
        parser.error(f"no run {sorted(unknown)[0]!r}; there are: {', '.join(KINDS)}")
    return Sizes(given.files, given.tables, given.bytes, given.window, given.grace, given.patience), kinds


def main() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    sizes, kinds = options(sys.argv[1:])
    with local_cloud() as cloud, tempfile.TemporaryDirectory() as folder, bigquery_client(cloud) as client:
        make_tables(cloud, kinds, sizes.tables)
        figures: list[Figures] = []
        # Spark in a daemon of its own: its warm-up is no part of what the others cost.
        for group in ([kind for kind in kinds if kind != "spark"], [kind for kind in kinds if kind == "spark"]):
            if group:
                with daemon(cloud, Path(folder), group, sizes) as running:
                    figures += [measure(cloud, running, kind, sizes) for kind in group]
        for kind in kinds:
            check(client, kind, sizes)
        seconds = floor(cloud, client, sizes) if "none" in kinds else None
    report(figures, seconds, sizes)


if __name__ == "__main__":
    main()
