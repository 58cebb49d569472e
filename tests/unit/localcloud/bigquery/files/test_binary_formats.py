import datetime as dt
import io
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc
from tests.support import files
from tests.support.files import parquet
from tests.support.loads import Loads, schema, shape

from ingestd.formats.avrofile import Container
from ingestd.formats.errors import BigQueryError, ErrorProto

UTC = dt.UTC
LISTS = {"parquetOptions": {"enableListInference": True}}
MAPS = pa.map_(pa.string(), pa.int64())
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
RECORD = {"type": "record", "name": "R", "fields": [{"name": "x", "type": "long"}]}
PAIRS = "v STRUCT(key STRING, value INT64) REPEATED"
LOCAL = dt.datetime.fromisoformat("2024-01-02T12:00:00.123456")
NOON = dt.datetime(2024, 1, 2, 12, 0, 0, 123456, tzinfo=UTC)


def avro(fields: list[dict[str, Any]], rows: list[dict[str, Any]], codec: str = "null") -> bytes:
    return Container.parse(files.avro(fields, rows)).build(codec)


@pytest.mark.parametrize(
    ("array", "options", "column", "value"),
    [
        (pa.array([1], pa.int8()), {}, "v INT64", 1),
        (pa.array([2**32 - 1], pa.uint32()), {}, "v INT64", 2**32 - 1),
        (pa.array([1.5], pa.float32()), {}, "v FLOAT64", 1.5),
        (pa.array([True]), {}, "v BOOL", True),
        (pa.array(["x"]), {}, "v STRING", "x"),
        (pa.array(["x"]).dictionary_encode(), {}, "v STRING", "x"),
        (pa.array([b"x"]), {}, "v BYTES", b"x"),
        (pa.array([b"xy"], pa.binary(2)), {}, "v BYTES", b"xy"),
        (pa.array([dt.date(2024, 1, 2)]), {}, "v DATE", dt.date(2024, 1, 2)),
        (pa.array([dt.time(1, 2, 3)], pa.time32("ms")), {}, "v TIME", dt.time(1, 2, 3)),
        (pa.array([NOON], pa.timestamp("us", "UTC")), {}, "v TIMESTAMP", NOON),
        (pa.array([NOON], pa.timestamp("us", "Asia/Tokyo")), {}, "v TIMESTAMP", NOON),
        (pa.array([NOON.replace(tzinfo=None)], pa.timestamp("us")), {}, "v TIMESTAMP", NOON),
        (pa.array([{"at": NOON.replace(tzinfo=None)}]), {}, "v STRUCT(at TIMESTAMP)", {"at": NOON}),
        (pa.array([Decimal("1.25")], pa.decimal128(10, 2)), {}, "v NUMERIC", Decimal("1.25")),
        (
            pa.array([Decimal("1.0000000001")], pa.decimal128(20, 10)),
            {"decimalTargetTypes": ["NUMERIC", "BIGNUMERIC"]},
            "v BIGNUMERIC",
            Decimal("1.0000000001"),
        ),
        (
            pa.array([Decimal("1.0000000001")], pa.decimal128(20, 10)),
            {"decimalTargetTypes": ["NUMERIC", "STRING"]},
            "v STRING",
            "1.0000000001",
        ),
        (
            pa.array([[1, 2]]),
            {},
            "v STRUCT(list STRUCT(element INT64) REPEATED)",
            {"list": [{"element": 1}, {"element": 2}]},
        ),
        (pa.array([[1, 2]]), LISTS, "v INT64 REPEATED", [1, 2]),
        (
            pa.array([None], pa.list_(pa.int64())),
            LISTS,
            "v INT64 REPEATED",
            [],
        ),
        (pa.array([{"x": 1, "y": "q"}]), {}, "v STRUCT(x INT64, y STRING)", {"x": 1, "y": "q"}),
        (pa.array([None], pa.struct([("x", pa.int64())])), {}, "v STRUCT(x INT64)", None),
        (
            pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())),
            {},
            "v STRUCT(key_value STRUCT(key STRING, value INT64) REPEATED)",
            {"key_value": [{"key": "k", "value": 1}]},
        ),
    ],
)
def test_parquet_types_map_as_documented(
    loads: Loads, array: pa.Array, options: dict[str, Any], column: str, value: Any
) -> None:
    loads.put("gs://b/f.parquet", parquet(pa.table({"v": array})))
    outcome = loads.load("gs://b/f.parquet", sourceFormat="PARQUET", **options)
    assert shape(outcome.schema) == [column]
    assert loads.rows() == [(value,)]


def test_parquet_timestamps_that_say_no_zone_are_datetimes_where_the_schema_says_so(loads: Loads) -> None:
    loads.put("gs://b/f.parquet", parquet(pa.table({"v": pa.array([NOON.replace(tzinfo=None)], pa.timestamp("us"))})))
    loads.load("gs://b/f.parquet", schema("v DATETIME"), sourceFormat="PARQUET")
    assert loads.rows() == [(NOON.replace(tzinfo=None),)]
    loads.load("gs://b/f.parquet", schema("v TIMESTAMP"), sourceFormat="PARQUET")
    assert loads.rows() == [(NOON,)]


def test_int96_is_an_instant(loads: Loads) -> None:
    table = pa.table({"v": pa.array([NOON.replace(tzinfo=None)], pa.timestamp("us"))})
    loads.put("gs://b/f.parquet", parquet(table, use_deprecated_int96_timestamps=True))
    outcome = loads.load("gs://b/f.parquet", sourceFormat="PARQUET")
    assert shape(outcome.schema) == ["v TIMESTAMP"]
    assert loads.rows() == [(NOON,)]


def test_nanoseconds_are_refused_in_parquet_and_dropped_in_orc_as_documented(loads: Loads) -> None:
    table = pa.table({"v": pa.array([1_700_000_000_123_456_789], pa.timestamp("ns"))})
    loads.put("gs://b/f.parquet", parquet(table, version="2.6"))
    with pytest.raises(BigQueryError, match="Invalid value for column 'v'"):
        loads.load("gs://b/f.parquet", sourceFormat="PARQUET")
    loads.put("gs://b/f.orc", files.orc(table))
    loads.load("gs://b/f.orc", sourceFormat="ORC")
    assert loads.conn.execute("SELECT epoch_us(v) FROM staged").fetchone() == (1_700_000_000_123_456,)


@pytest.mark.parametrize("codec", ["snappy", "gzip", "zstd", "none"])
def test_parquet_codecs_are_read(loads: Loads, codec: str) -> None:
    loads.put("gs://b/f.parquet", parquet(pa.table({"v": list(range(1000))}), compression=codec))
    assert loads.load("gs://b/f.parquet", sourceFormat="PARQUET").rows == 1000


@pytest.mark.parametrize("codec", ["snappy", "zlib", "zstd", "uncompressed"])
def test_orc_files_are_read_whatever_their_codec(loads: Loads, codec: str) -> None:
    table = pa.table(
        {
            "a": [1, None],
            "s": ["x", None],
            "l": [[1], None],
            "m": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
        }
    )
    loads.put("gs://b/f.orc", files.orc(table, compression=codec))
    outcome = loads.load("gs://b/f.orc", sourceFormat="ORC")
    assert shape(outcome.schema) == [
        "a INT64",
        "s STRING",
        "l INT64 REPEATED",
        "m STRUCT(key STRING, value INT64) REPEATED",
    ]
    assert loads.rows("a NULLS LAST") == [(1, "x", [1], [{"key": "k", "value": 1}]), (None, None, [], [])]


@pytest.mark.parametrize("codec", ["null", "deflate", "snappy", "zstandard"])
def test_avro_codecs_are_read(loads: Loads, codec: str) -> None:
    fields = [{"name": "v", "type": "long"}]
    loads.put("gs://b/f.avro", avro(fields, [{"v": number} for number in range(5000)], codec))
    loads.load("gs://b/f.avro", sourceFormat="AVRO")
    assert loads.conn.execute("SELECT count(*), sum(v) FROM staged").fetchone() == (5000, 5000 * 4999 // 2)


@pytest.mark.parametrize(
    ("kind", "given", "logical", "column", "value"),
    [
        ("int", 1, False, "v INT64", 1),
        ("float", 1.5, False, "v FLOAT64", 1.5),
        ("bytes", b"x", False, "v BYTES", b"x"),
        (["null", "string"], None, False, "v STRING", None),
        (["string", "null"], "x", False, "v STRING", "x"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "A", False, "v STRING", "A"),
        ({"type": "fixed", "name": "F", "size": 2}, b"ab", False, "v BYTES", b"ab"),
        ({"type": "array", "items": "long"}, [1, 2], False, "v INT64 REPEATED", [1, 2]),
        (["null", {"type": "array", "items": "long"}], None, False, "v INT64 REPEATED", []),
        ({"type": "map", "values": "long"}, {"k": 1}, False, PAIRS, [{"key": "k", "value": 1}]),
        (RECORD, {"x": 1}, False, "v STRUCT(x INT64)", {"x": 1}),
        ({"type": "int", "logicalType": "date"}, dt.date(2024, 1, 2), False, "v INT64", 19724),
        ({"type": "int", "logicalType": "date"}, dt.date(2024, 1, 2), True, "v DATE", dt.date(2024, 1, 2)),
        ({"type": "long", "logicalType": "timestamp-micros"}, NOON, False, "v INT64", 1704196800123456),
        ({"type": "long", "logicalType": "timestamp-micros"}, NOON, True, "v TIMESTAMP", NOON),
        (MILLIS, NOON, True, "v TIMESTAMP", NOON.replace(microsecond=123000)),
        ({"type": "long", "logicalType": "local-timestamp-micros"}, LOCAL, True, "v DATETIME", LOCAL),
        ({"type": "int", "logicalType": "time-millis"}, dt.time(1, 2, 3), True, "v TIME", dt.time(1, 2, 3)),
        (DECIMAL, Decimal("-1.25"), True, "v NUMERIC", Decimal("-1.25")),
        (DECIMAL, Decimal("1.25"), False, "v BYTES", b"\x7d"),
        ({"type": "string", "sqlType": "JSON"}, '{"a": 1}', True, "v JSON", '{"a":1}'),
    ],
)
def test_avro_types_map_as_documented(
    loads: Loads, kind: Any, given: Any, logical: bool, column: str, value: Any
) -> None:
    loads.put("gs://b/f.avro", avro([{"name": "v", "type": kind}], [{"v": given}]))
    outcome = loads.load("gs://b/f.avro", sourceFormat="AVRO", useAvroLogicalTypes=logical)
    assert shape(outcome.schema) == [column]
    assert loads.rows() == [(value,)]


def test_required_columns_of_a_file_stay_required(loads: Loads) -> None:
    loads.put("gs://b/f.avro", avro([{"name": "v", "type": "long"}], [{"v": 1}]))
    assert loads.load("gs://b/f.avro", sourceFormat="AVRO").schema[0].mode == "REQUIRED"


@pytest.mark.parametrize(
    ("format_", "message"),
    [
        ("PARQUET", "Input file is not in Parquet format."),
        ("AVRO", "failed to parse the header with the following error: Invalid data file. Magic does not match"),
        ("ORC", "Not an ORC file."),
    ],
)
def test_a_file_of_another_format_is_named(loads: Loads, format_: str, message: str) -> None:
    loads.put("gs://b/f", b"not what you think, and long enough")
    loads.put("gs://b/g", b"nor this, although it is long enough")
    with pytest.raises(BigQueryError) as failed:
        loads.load(["gs://b/f", "gs://b/g"], schema("v INT64"), sourceFormat=format_)
    assert failed.value.location == "gs://b/f"
    assert failed.value.message.startswith("Error while reading data, error message: ")
    assert message in failed.value.message
    assert [detail.location for detail in failed.value.details] == ["gs://b/g"]


@pytest.mark.parametrize("format_", ["PARQUET", "AVRO", "ORC"])
@pytest.mark.parametrize("keep", [0.3, 0.9])
def test_a_truncated_file_is_refused_whole(loads: Loads, format_: str, keep: float) -> None:
    out = io.BytesIO()
    orc.write_table(pa.table({"v": list(range(5000))}), out)
    whole = {
        "PARQUET": parquet(pa.table({"v": list(range(5000))})),
        "AVRO": avro([{"name": "v", "type": "long"}], [{"v": number} for number in range(5000)]),
        "ORC": out.getvalue(),
    }[format_]
    loads.put("gs://b/f", whole[: int(len(whole) * keep)])
    with pytest.raises(BigQueryError) as failed:
        loads.load("gs://b/f", sourceFormat=format_)
    assert failed.value.location == "gs://b/f"


def test_a_column_of_another_type_is_refused_with_bigquerys_words(loads: Loads) -> None:
    loads.put("gs://b/f", parquet(pa.table({"x": ["a"]})))
    with pytest.raises(BigQueryError) as failed:
        loads.load("gs://b/f", schema("x INT64"), sourceFormat="PARQUET")
    assert failed.value.proto == ErrorProto(
        "invalid",
        "Error while reading data, error message: Parquet column 'x' has type BYTE_ARRAY which does not match the "
        "target cpp_type INT64. File: gs://b/f",
        "gs://b/f",
    )


def test_columns_are_fitted_to_the_table(loads: Loads) -> None:
    table = pa.table({"B": ["x"], "a": pa.array([1], pa.int32()), "d": pa.array([Decimal("1.5")], pa.decimal128(5, 1))})
    loads.put("gs://b/f", parquet(table))
    loads.load("gs://b/f", schema("a FLOAT64", "b STRING", "c STRING REPEATED", "d BIGNUMERIC"), sourceFormat="PARQUET")
    assert loads.rows() == [(1.0, "x", [], Decimal("1.5"))]


@pytest.mark.parametrize("write", [pq.write_table, orc.write_table])
def test_a_null_record_excuses_its_own_members_and_no_others(loads: Loads, write: Any) -> None:
    kind, table = pa.struct([("a", pa.int64()), ("b", pa.string())]), schema("r STRUCT(a INT64 REQUIRED, b STRING)")
    format_ = "PARQUET" if write is pq.write_table else "ORC"
    for uri, second in (("gs://b/good", {"a": 1}), ("gs://b/bad", {"b": "x"})):
        out = pa.BufferOutputStream()
        write(pa.table({"r": pa.array([None, second], kind)}), out)
        loads.put(uri, out.getvalue().to_pybytes())
    loads.load("gs://b/good", table, sourceFormat=format_)
    assert loads.rows() == [({"a": 1, "b": None},), (None,)]
    with pytest.raises(BigQueryError, match=r"Required field r\.a cannot be null"):
        loads.load("gs://b/bad", table, sourceFormat=format_)


def test_columns_the_table_lacks_are_refused_or_ignored(loads: Loads) -> None:
    loads.put("gs://b/f", parquet(pa.table({"a": [1], "b": [2]})))
    with pytest.raises(BigQueryError, match=r"Cannot add fields \(field: b\)"):
        loads.load("gs://b/f", schema("a INT64"), sourceFormat="PARQUET")
    loads.load("gs://b/f", schema("a INT64"), sourceFormat="PARQUET", ignoreUnknownValues=True)
    assert loads.rows() == [(1,)]


def test_a_64_bit_unsigned_integer_beyond_the_signed_range_is_refused(loads: Loads) -> None:
    loads.put("gs://b/f", parquet(pa.table({"v": pa.array([2**64 - 1], pa.uint64())})))
    with pytest.raises(BigQueryError, match="Invalid value for column 'v'"):
        loads.load("gs://b/f", sourceFormat="PARQUET")


def test_the_last_file_by_name_or_the_reference_file_gives_the_schema(loads: Loads) -> None:
    loads.put("gs://b/1", parquet(pa.table({"a": [1]})))
    loads.put("gs://b/2", parquet(pa.table({"a": [2], "b": ["x"]})))
    outcome = loads.load("gs://b/*", sourceFormat="PARQUET")
    assert shape(outcome.schema) == ["a INT64", "b STRING"]
    assert loads.rows() == [(1, None), (2, "x")]
    loads.put("gs://b/2", parquet(pa.table({"a": [2]})))
    loads.put("gs://r/ref", parquet(pa.table({"a": [2], "c": ["x"]})))
    outcome = loads.load("gs://b/*", sourceFormat="PARQUET", referenceFileSchemaUri="gs://r/ref")
    assert shape(outcome.schema) == ["a INT64", "c STRING"]


def test_projection_keeps_the_named_columns(loads: Loads) -> None:
    loads.put("gs://b/f", parquet(pa.table({"a": [1], "b": [2]})))
    outcome = loads.load("gs://b/f", sourceFormat="PARQUET", projectionFields=["B"])
    assert shape(outcome.schema) == ["b INT64"]
