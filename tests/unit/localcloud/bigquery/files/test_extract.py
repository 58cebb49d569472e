import gzip
import io
import json
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.loads import Loads, schema

from ingestd.formats.errors import BigQueryError
from ingestd.localcloud.bigquery.files.extract import ExtractOutcome, extract

COLUMNS = schema(
    "i INT64", "f FLOAT64", "s STRING", "b BYTES", "t TIMESTAMP", "d DATE", "n NUMERIC", "o BOOL", "dt DATETIME"
)
VALUES = (
    "SELECT 9007199254740993::BIGINT i, 1.5::DOUBLE f, 'a<b>&\"c' s, 'xy'::BLOB b, "
    "TIMESTAMPTZ '2024-01-02 03:04:05.100Z' t, DATE '2024-01-02' d, 12.5::DECIMAL(38,9) n, true o, "
    "TIMESTAMP '2024-01-02 03:04:05' dt"
)


def run(
    loads: Loads, sql: str, columns: Any, uris: list[str], limits: dict[str, int] | None = None, **config: Any
) -> ExtractOutcome:
    return extract(loads.conn, loads.objects, sql, columns, config, uris, **(limits or {}))


def test_json_is_written_as_bigquery_writes_it(loads: Loads) -> None:
    run(loads, VALUES, COLUMNS, ["gs://b/x.json"], destinationFormat="NEWLINE_DELIMITED_JSON")
    data = loads.objects.read("gs://b/x.json")
    assert b"a\\u003cb\\u003e\\u0026" in data
    assert json.loads(data) == {
        "i": "9007199254740993",
        "f": 1.5,
        "s": 'a<b>&"c',
        "b": "eHk=",
        "t": "2024-01-02 03:04:05.1 UTC",
        "d": "2024-01-02",
        "n": "12.5",
        "o": True,
        "dt": "2024-01-02T03:04:05",
    }


def test_csv_is_written_with_header_and_quotes(loads: Loads) -> None:
    run(loads, VALUES, COLUMNS, ["gs://b/x.csv"])
    assert loads.objects.read("gs://b/x.csv").decode() == (
        'i,f,s,b,t,d,n,o,dt\n9007199254740993,1.5,"a<b>&""c",eHk=,2024-01-02 03:04:05.1 UTC,2024-01-02,12.5,true,'
        "2024-01-02T03:04:05\n"
    )


def test_csv_options_are_honoured(loads: Loads) -> None:
    sql = "SELECT NULL::BIGINT a, '' b, 'x;y' c"
    run(
        loads,
        sql,
        schema("a INT64", "b STRING", "c STRING"),
        ["gs://b/x.csv.gz"],
        printHeader=False,
        fieldDelimiter=";",
        compression="GZIP",
    )
    assert gzip.decompress(loads.objects.read("gs://b/x.csv.gz")) == b';"";"x;y"\n'


@pytest.mark.parametrize("column", ["r STRUCT(x INT64)", "r INT64 REPEATED"])
def test_csv_refuses_nested_data(loads: Loads, column: str) -> None:
    with pytest.raises(BigQueryError, match=r"Operation cannot be performed on a nested schema. Field: r"):
        run(loads, "SELECT 1", schema(column), ["gs://b/x.csv"])


def test_a_wildcard_is_numbered_and_split_by_size(loads: Loads) -> None:
    sql = "SELECT range::BIGINT v FROM range(50000)"
    outcome = run(loads, sql, schema("v INT64"), ["gs://b/x-*.csv"], {"shard_bytes": 200_000}, printHeader=True)
    names = [item.uri for item in loads.objects.match("gs://b/*")]
    assert names[0] == "gs://b/x-000000000000.csv"
    assert outcome.file_counts == [len(names)]
    assert len(names) > 1
    assert outcome.rows == 50000
    loads.load("gs://b/x-*.csv", schema("v INT64"), skipLeadingRows=1)
    assert loads.conn.execute("SELECT count(DISTINCT v), sum(v) FROM staged").fetchone() == (50000, 50000 * 49999 // 2)


def test_several_wildcards_share_the_shards(loads: Loads) -> None:
    sql = "SELECT range::BIGINT v FROM range(50000)"
    outcome = run(loads, sql, schema("v INT64"), ["gs://b/x*", "gs://b/y*"], {"shard_bytes": 100_000})
    assert sum(outcome.file_counts) == len(loads.objects.match("gs://b/*"))
    assert min(outcome.file_counts) > 0


def test_too_much_for_a_single_file_is_refused_and_nothing_is_written(loads: Loads) -> None:
    sql = "SELECT range::BIGINT v FROM range(50000)"
    with pytest.raises(BigQueryError, match="too large to be exported to a single file"):
        run(loads, sql, schema("v INT64"), ["gs://b/x"], {"single_file_limit": 100_000})
    assert loads.objects.match("gs://b/*") == []


def test_an_empty_table_makes_one_file(loads: Loads) -> None:
    outcome = run(loads, "SELECT 1::BIGINT v WHERE false", schema("v INT64"), ["gs://b/x*.csv"])
    assert (outcome.file_counts, outcome.rows) == ([1], 0)
    assert loads.objects.read("gs://b/x000000000000.csv") == b"v\n"


@pytest.mark.parametrize(
    ("logical", "kind"),
    [(True, {"type": "int", "logicalType": "date"}), (False, {"type": "string", "sqlType": "DATE"})],
)
def test_avro_logical_types_are_written_when_asked(loads: Loads, logical: bool, kind: dict[str, str]) -> None:
    run(loads, VALUES, COLUMNS, ["gs://b/x.avro"], destinationFormat="AVRO", useAvroLogicalTypes=logical)
    reader = fastavro.reader(io.BytesIO(loads.objects.read("gs://b/x.avro")))
    fields = {item["name"]: item["type"] for item in json.loads(reader.metadata["avro.schema"])["fields"]}
    assert fields["d"] == ["null", kind]
    assert fields["t"] == ["null", {"type": "long", "logicalType": "timestamp-micros"}]


def test_parquet_times_are_written_as_documented(loads: Loads) -> None:
    """TIMESTAMP and DATETIME alike say that they are not adjusted to UTC, TIME says that it is; all in microseconds."""
    columns = schema("t TIMESTAMP", "dt DATETIME", "tm TIME", "r STRUCT(t TIMESTAMP)", "l TIMESTAMP REPEATED")
    at = "TIMESTAMPTZ '2024-01-02 03:04:05.100Z'"
    values = f"SELECT {at} t, TIMESTAMP '2024-01-02 03:04:05' dt, TIME '03:04:05' tm, {{'t': {at}}} r, [{at}] l"
    run(loads, values, columns, ["gs://b/x.parquet"], destinationFormat="PARQUET")
    written = pq.ParquetFile(pa.BufferReader(loads.objects.read("gs://b/x.parquet"))).schema
    kinds = {item.path: json.loads(item.logical_type.to_json()) for item in map(written.column, range(len(written)))}
    assert {path: (kind["Type"], kind["isAdjustedToUTC"], kind["timeUnit"]) for path, kind in kinds.items()} == {
        "t": ("Timestamp", False, "microseconds"),
        "dt": ("Timestamp", False, "microseconds"),
        "tm": ("Time", True, "microseconds"),
        "r.t": ("Timestamp", False, "microseconds"),
        "l.list.element": ("Timestamp", False, "microseconds"),
    }


@pytest.mark.parametrize(
    "config",
    [
        {"destinationFormat": "XML"},
        {"destinationFormat": "CSV", "compression": "SNAPPY"},
        {"destinationFormat": "AVRO", "compression": "GZIP"},
        {"nope": 1},
    ],
)
def test_options_that_cannot_be_honoured_are_refused(loads: Loads, config: dict[str, Any]) -> None:
    with pytest.raises(BigQueryError) as refused:
        run(loads, "SELECT 1 v", schema("v INT64"), ["gs://b/x"], **config)
    assert refused.value.reason == "invalid"
