"""What a batch costs by what is asked of it, and by the format of its files.

The rows and the plain work are those of `bench.spark` (one row per key, one transformed column). Beside it, on the same
session and files: the key ordered by a column, the key computed, a side input joined, and the rows split between two
tables. Then the plain work on the same rows as NDJSON, CSV, Parquet and Avro, beside DuckDB reading the same files
(Polars for Avro: DuckDB reads it only with an extension that has to be downloaded).

`python -m bench.shapes [FILES [ROUNDS]]` takes 20 files of 5 MB; it prints tables and, last, one line of JSON.
"""

import json
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa

from bench.spark import DUCK, LEVEL, POLARS, SHAPING, Corpus, duckdb_writes, make, warm_session, work_of
from ingestd.model.preparation import Branch, Shaping, SideInput
from ingestd.model.schema import Field, Type
from ingestd.ports import TableRows
from ingestd.spark.session.engine import Engine
from ingestd.spark.shape import pipeline
from ingestd.spark.shape.side_inputs import side_frame
from ingestd.spark.shape.steps import SideFrame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILES, SIZE, ROUNDS = 20, 5_000_000, 5
SHAPE_TARGET, FORMAT_TARGET = 1.2, 2.0
JOINED = SideInput("c", "c.code = t.country", select="SELECT 1")
SHAPES: dict[str, Shaping] = {
    "plain key": SHAPING,
    "ordered": replace(SHAPING, order_by=("`at` DESC",)),
    "computed key": replace(SHAPING, unique_columns=("CONCAT('k', CAST(id AS STRING))",)),
    "side input": replace(SHAPING, side_inputs=(JOINED,), transform={"country": "COALESCE(c.name, 'unknown')"}),
    "split": replace(SHAPING, branches=(Branch("amount < 1000"),)),
}
OPTIONS = {
    "NDJSON": {"sourceFormat": "NEWLINE_DELIMITED_JSON"},
    "CSV": {"sourceFormat": "CSV"},
    "Parquet": {"sourceFormat": "PARQUET"},
    "Avro": {"sourceFormat": "AVRO", "useAvroLogicalTypes": True},
}
SUFFIX = {"NDJSON": "json", "CSV": "csv", "Parquet": "parquet", "Avro": "avro"}


def countries(session: "SparkSession") -> Mapping[str, SideFrame]:
    """As the daemon hands rows of a table to Spark."""
    rows = pa.table({"code": ["de", "fr", "it"], "name": ["Germany", "France", "Italy"]})
    fields = (Field("code", Type.STRING), Field("name", Type.STRING))
    return {"c": side_frame(session, TableRows(fields, rows))}


def prepare(engine: Engine, work: pipeline.Work) -> int:
    with engine.tagged("shapes", "default") as session:
        made = pipeline.prepare(session, work)
    assert not made.verdict.bad, made.verdict.bad[:3]
    return sum(made.rows.values())


def in_turn(works: Mapping[str, Callable[[Path], int]], folder: Path, rounds: int, keys: int) -> dict[str, float]:
    """The best of several rounds of each, in turn, so that what else the machine does meets all of them."""
    taken: dict[str, list[float]] = {name: [] for name in works}
    for number in range(rounds):
        for name, work in works.items():
            out = folder / f"out-{number}"
            began = time.perf_counter()
            found = work(out)
            taken[name].append(time.perf_counter() - began)
            assert found == keys, f"{name}: {found} rows of {keys} keys"
            shutil.rmtree(out, ignore_errors=True)
            out.with_suffix(".parquet").unlink(missing_ok=True)
    return {name: min(values) for name, values in taken.items()}


def shapes(engine: Engine, cores: int, corpus: Corpus, rounds: int) -> dict[str, float]:
    def one(shaping: Shaping) -> Callable[[Path], int]:
        sides = countries if shaping.side_inputs else None
        return lambda out: prepare(engine, replace(work_of(corpus, cores, out), shaping=shaping, sides=sides))

    found = in_turn({name: one(shaping) for name, shaping in SHAPES.items()}, corpus.folder.parent, rounds, corpus.keys)
    print(
        f"\n{corpus.size / 1e6:,.0f} MB by what is asked    {'seconds':>9}{'x plain key':>13}   target {SHAPE_TARGET}"
    )
    for name, seconds in found.items():
        print(f"  {name:24}{seconds:12.2f}{seconds / found['plain key']:13.2f}")
    return {name: round(seconds / found["plain key"], 2) for name, seconds in found.items()}


def written(corpus: Corpus, kind: str) -> Corpus:
    """The same rows in another format."""
    if kind == "NDJSON":
        return corpus
    folder = corpus.folder.parent / kind
    folder.mkdir()
    paths = []
    for path in corpus.paths:
        frame = pl.read_ndjson(path, schema=POLARS)
        place = folder / f"{path.stem}.{SUFFIX[kind]}"
        if kind == "CSV":
            frame.write_csv(place, include_header=False)
        else:
            frame = frame.with_columns(pl.col("at").str.to_datetime("%Y-%m-%dT%H:%M:%SZ", time_zone="UTC"))
            if kind == "Parquet":
                frame.write_parquet(place)
            else:
                frame.with_columns(pl.col("at").dt.replace_time_zone(None)).write_avro(place)
        paths.append(place)
    return Corpus(kind, folder, tuple(paths), corpus.keys)


def peer(corpus: Corpus, kind: str, out: Path) -> int:
    if kind == "Avro":
        frame = pl.concat([pl.read_avro(path) for path in corpus.paths])
        frame = frame.with_columns(pl.col("country").str.to_uppercase()).unique("id", keep="any")
        frame.write_parquet(f"{out}.parquet", compression="zstd", compression_level=LEVEL)
        return len(frame)
    at = f"'{corpus.folder}/*.{SUFFIX[kind]}'"
    source = {
        "NDJSON": f"read_json({at}, format = 'newline_delimited', columns = {DUCK})",
        "CSV": f"read_csv({at}, header = false, columns = {DUCK})",
        "Parquet": f"read_parquet({at})",
    }[kind]
    return duckdb_writes(source, out)


def formats(engine: Engine, cores: int, corpus: Corpus, rounds: int) -> dict[str, float]:
    print(f"\n{'the same rows as':18}{'MB':>7}{'ingestd':>10}{'peer':>8}{'x peer':>9}   target {FORMAT_TARGET}")
    found: dict[str, float] = {}
    for kind, options in OPTIONS.items():
        same = written(corpus, kind)
        works: dict[str, Callable[[Path], int]] = {
            "ingestd": lambda out, same=same, options=options: prepare(engine, work_of(same, cores, out, options)),
            "peer": lambda out, same=same, kind=kind: peer(same, kind, out),
        }
        taken = in_turn(works, corpus.folder.parent, rounds, corpus.keys)
        found[kind] = round(taken["ingestd"] / taken["peer"], 2)
        name = f"{kind} ({'Polars' if kind == 'Avro' else 'DuckDB'})"
        print(f"{name:18}{same.size / 1e6:7.0f}{taken['ingestd']:10.2f}{taken['peer']:8.2f}{found[kind]:9.2f}")
    return found


def main(files: int = FILES, rounds: int = ROUNDS) -> None:
    report: dict[str, Any] = {}
    with warm_session() as (engine, where, folder):
        corpus = make(folder, "NDJSON", files, SIZE)
        report["x_plain_key"] = shapes(engine, where.cores, corpus, rounds)
        report["x_peer"] = formats(engine, where.cores, corpus, rounds)
    print(json.dumps(report))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
