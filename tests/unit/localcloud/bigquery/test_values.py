"""Names, cells, page tokens, legacy SQL, uploads, audit entries: the small translations."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingestd.formats.errors import BigQueryError
from ingestd.localcloud.bigquery.audit import TRUNCATE_AT, completion
from ingestd.localcloud.bigquery.cells import encoder
from ingestd.localcloud.bigquery.duckdb_types import column_type
from ingestd.localcloud.bigquery.jobs import Job, JobKey, JobType
from ingestd.localcloud.bigquery.legacy_sql import standard_sql
from ingestd.localcloud.bigquery.paging import decode_token, encode_token
from ingestd.localcloud.bigquery.resources import DatasetRef, TableRef, split_decorator
from ingestd.localcloud.bigquery.routes import discovery, match
from ingestd.localcloud.bigquery.sizes import measure
from ingestd.localcloud.bigquery.upload_protocol import Posted, UploadSessions
from ingestd.localcloud.http import Request, Response
from ingestd.model.schema import Field, Mode, Type

AT = datetime(2024, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("p:d.t", TableRef("p", "d", "t")),
        ("p.d.t", TableRef("p", "d", "t")),
        ("`p.d.t`", TableRef("p", "d", "t")),
        ("`p`.`d`.`t`", TableRef("p", "d", "t")),
        ("d.t", TableRef("home", "d", "t")),
        ("example.com:p:d.t", TableRef("example.com:p", "d", "t")),
        ("example.com:p.d.t", TableRef("example.com:p", "d", "t")),
        ("p.d.t$20240101", TableRef("p", "d", "t$20240101")),
    ],
)
def test_table_names_are_read_in_every_form(text: str, expected: TableRef) -> None:
    assert TableRef.parse(text, "home") == expected


def test_a_bare_table_needs_a_default_dataset() -> None:
    assert TableRef.parse("t", "home", DatasetRef("p", "d")) == TableRef("p", "d", "t")
    with pytest.raises(BigQueryError, match="must be qualified with a dataset"):
        TableRef.parse("t", "home")


def test_decorators_are_split_off() -> None:
    assert split_decorator("t$20240101") == ("t", "20240101")
    assert split_decorator("t") == ("t", None)


def test_a_physical_name_cannot_break_out_of_its_quotes() -> None:
    assert TableRef("p", "d", 'a"; DROP TABLE x; --').physical == '"p.d"."a""; DROP TABLE x; --"'


@pytest.mark.parametrize(
    ("item", "value", "cell"),
    [
        (Field("x", Type.INT64), 5, "5"),
        (Field("x", Type.FLOAT64), float("-inf"), "-Infinity"),
        (Field("x", Type.FLOAT64), float("nan"), "NaN"),
        (Field("x", Type.NUMERIC), Decimal("1.500000000"), "1.5"),
        (Field("x", Type.NUMERIC), Decimal("100.000000000"), "100"),
        (Field("x", Type.BOOL), False, "false"),
        (Field("x", Type.BYTES), b"\xff", "/w=="),
        (Field("x", Type.TIMESTAMP), 0, "0.0"),
        (Field("x", Type.TIMESTAMP), 1_704_067_200_123_456, "1.704067200123456E9"),
        (Field("x", Type.TIMESTAMP), -500_000, "-0.5"),
        (Field("x", Type.INTERVAL), [1, -2, 3, -4_500_000], "-1-2 3 -0:0:4.5"),
        (Field("x", Type.STRING, Mode.REPEATED), ["a", "b"], [{"v": "a"}, {"v": "b"}]),
        (Field("x", Type.STRING, Mode.REPEATED), None, []),
        (
            Field("x", Type.STRUCT, fields=(Field("a", Type.INT64), Field("b", Type.STRING, Mode.REPEATED))),
            {"a": 1, "b": []},
            {"f": [{"v": "1"}, {"v": []}]},
        ),
    ],
)
def test_cells_are_written_as_bigquery_writes_them(item: Field, value: Any, cell: Any) -> None:
    assert encoder(item, int64_timestamp=False)(value) == cell


@given(st.integers(-62135596800_000_000, 253402300799_999_999))
def test_a_float_timestamp_reads_back_to_the_microsecond(micros: int) -> None:
    text = encoder(Field("x", Type.TIMESTAMP), int64_timestamp=False)(micros)
    assert Decimal(text) * 1_000_000 == micros
    assert encoder(Field("x", Type.TIMESTAMP), int64_timestamp=True)(micros) == str(micros)


@given(st.integers(0, 2**62))
def test_page_tokens_round_trip(offset: int) -> None:
    assert decode_token(encode_token(offset)) == offset


@given(st.text(min_size=1))
def test_a_foreign_page_token_is_refused_not_misread(token: str) -> None:
    try:
        assert decode_token(token) >= 0
    except BigQueryError as error:
        assert error.reason == "invalid"


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"query": "SELECT 1", "useLegacySql": False}, "SELECT 1"),
        ({"query": "SELECT a FROM [p:d.t]"}, "SELECT a FROM `p.d.t`"),
        ({"query": "SELECT a FROM [d.t]", "useLegacySql": True}, "SELECT a FROM `d.t`"),
        ({"query": "#standardSQL\nSELECT [1]", "useLegacySql": True}, "#standardSQL\nSELECT [1]"),
        ({"query": "SELECT [1, 2]", "useLegacySql": False}, "SELECT [1, 2]"),
    ],
)
def test_simple_legacy_sql_becomes_googlesql(query: dict[str, Any], expected: str) -> None:
    assert standard_sql(query) == expected


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT a FROM [d.t1], [d.t2]",
        "SELECT a FROM TABLE_DATE_RANGE([d.t_], TIMESTAMP('2024-01-01'), TIMESTAMP('2024-01-02'))",
        "SELECT a FROM [d.t@-3600]",
        "SELECT a FROM [d.t'; DROP]",
    ],
)
def test_other_legacy_sql_is_refused_by_name(sql: str) -> None:
    with pytest.raises(BigQueryError, match="legacy SQL") as refused:
        standard_sql({"query": sql})
    assert refused.value.status == 501


def _request(method: str, query: str, body: bytes, **headers: str) -> Request:
    named = {key.replace("_", "-"): value for key, value in headers.items()}
    return Request(method, "/upload/bigquery/v2/projects/p/jobs", query, named, body, "localhost:1")


@pytest.mark.parametrize("newline", [b"\r\n", b"\n"])
def test_a_multipart_upload_is_a_job_and_its_bytes(newline: bytes) -> None:
    data = b"1,a" + newline + b"2,b" + newline
    head = b"Content-Type: application/json" + newline * 2
    body = b"--xx" + newline + head + b'{"configuration": {}}' + newline
    body += b"--xx" + newline + b"Content-Type: */*" + newline * 2 + data + newline + b"--xx--"
    request = _request("POST", "uploadType=multipart", body, content_type='multipart/related; boundary="xx"')
    assert UploadSessions().handle(request, "p") == Posted("p", {"configuration": {}}, data)


def test_a_resumable_upload_survives_a_repeated_chunk() -> None:
    sessions = UploadSessions()
    opened = sessions.handle(_request("POST", "uploadType=resumable", b'{"a": 1}'), "p")
    assert isinstance(opened, Response)
    query = opened.headers["location"].partition("?")[2]
    first = sessions.handle(_request("PUT", query, b"abcd", content_range="bytes 0-3/*"), "p")
    assert isinstance(first, Response)
    assert (first.status, first.headers) == (308, {"range": "bytes=0-3"})
    asked = sessions.handle(_request("PUT", query, b"", content_range="bytes */*"), "p")
    assert isinstance(asked, Response)
    assert asked.headers == {"range": "bytes=0-3"}
    done = sessions.handle(_request("PUT", query, b"cdef", content_range="bytes 2-5/6"), "p")
    assert done == Posted("p", {"a": 1}, b"abcdef")


def test_audit_entries_cut_long_lists_and_say_so() -> None:
    uris = [f"gs://bucket/{'x' * 90}{number:06}" for number in range(1_000)]
    load = {"sourceUris": uris, "destinationTable": {"datasetId": "d", "tableId": "t"}}
    job = Job(JobKey("p", "US", "j"), JobType.LOAD, {"load": load}, AT, "u").done(AT + timedelta(seconds=1))
    config = completion(job)["protoPayload"]["metadata"]["jobChange"]["job"]["jobConfig"]["loadConfig"]
    assert config["sourceUrisTruncated"] is True
    assert 0 < sum(map(len, config["sourceUris"])) <= TRUNCATE_AT


@pytest.mark.parametrize(
    ("kind", "details", "key"),
    [
        (
            JobType.LOAD,
            {"sourceUris": ["gs://b/o"], "destinationTable": {"datasetId": "d", "tableId": "t"}},
            "loadConfig",
        ),
        (
            JobType.COPY,
            {"sourceTable": {"datasetId": "d", "tableId": "a"}, "destinationTable": {"datasetId": "d", "tableId": "t"}},
            "tableCopyConfig",
        ),
        (
            JobType.EXTRACT,
            {"sourceTable": {"datasetId": "d", "tableId": "a"}, "destinationUris": ["gs://b/o"]},
            "extractConfig",
        ),
        (JobType.QUERY, {"query": "SELECT 1"}, "queryConfig"),
    ],
)
def test_every_kind_of_job_has_its_audit_shape(kind: JobType, details: dict[str, Any], key: str) -> None:
    job = Job(JobKey("p", "US", "j"), kind, {kind.key: details}, AT, "u")
    failed = job.done(AT, error=BigQueryError("notFound", "Not found: x"))
    described = completion(failed)["protoPayload"]["metadata"]["jobChange"]["job"]
    assert key in described["jobConfig"]
    assert described["jobStatus"]["errorResult"] == {"code": 5, "message": "Not found: x"}
    assert completion(failed)["severity"] == "ERROR"


def test_a_stored_job_reads_back_as_it_was() -> None:
    job = Job(JobKey("p", "US", "j"), JobType.QUERY, {"query": {"query": "SELECT 1"}}, AT, "u", parent="x")
    done = job.running(AT).done(AT, error=BigQueryError("invalid", "no", "gs://b/o"))
    assert Job.load(done.key, done.state, done.parent, done.dump()) == done
    assert replace(done, errors=()).rest()["status"]["errorResult"]["location"] == "gs://b/o"


def test_the_discovery_document_names_every_route() -> None:
    document = discovery("http://localhost:1/")
    methods = {f"{name}.{method}" for name, item in document["resources"].items() for method in item["methods"]}
    assert {"jobs.insert", "tables.patch", "tabledata.insertAll"} <= methods
    found = match("GET", "/bigquery/v2/projects/p/datasets/d/tables/t%2420240101/data")
    assert found is not None
    assert (found.name, found.arguments["tableId"]) == ("tabledata.list", "t$20240101")


def test_logical_bytes_follow_the_price_list() -> None:
    schema = (
        Field("i", Type.INT64),
        Field("s", Type.STRING),
        Field("b", Type.BYTES),
        Field("tags", Type.STRING, Mode.REPEATED),
        Field("r", Type.STRUCT, Mode.REPEATED, (Field("x", Type.INT64), Field("y", Type.NUMERIC))),
    )
    conn = duckdb.connect()
    columns = ", ".join(f"{item.name} {column_type(item)}" for item in schema)
    conn.execute(f"CREATE TABLE t ({columns})")
    conn.execute(
        "INSERT INTO t VALUES (1, 'é', 'ab'::BLOB, ['x', 'yz'], [{'x': 1, 'y': 2.5}]), (NULL, NULL, NULL, [], [])"
    )
    assert measure(conn, "t", schema) == (2, 8 + (2 + 2) + (2 + 2) + (3 + 4) + (8 + 16))
    conn.close()
