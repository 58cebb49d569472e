"""Rows that reach a table through Spark are those of a direct load of the same files, value by value."""

import csv
import io
import json
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet
import pytest
from tests.spark.batches import NDJSON, Batches
from tests.spark.reads import EVERYTHING
from tests.support.files import avro, lines, orc, parquet
from tests.support.loads import schema

from ingestd.model.errors import BadInput
from ingestd.model.preparation import Branch, Shaping, Unmatched

EXACT = schema(
    "i INT64 REQUIRED",
    "f FLOAT64",
    "n NUMERIC",
    "o BOOL",
    "s STRING",
    "y BYTES",
    "d DATE",
    "dt DATETIME",
    "ts TIMESTAMP",
    "l INT64 REPEATED",
    "r STRUCT(x NUMERIC, y TIMESTAMP REPEATED) REPEATED",
)
EDGES: list[dict[str, Any]] = [
    {"i": -(2**63), "f": 5e-324, "n": "-99999999999999999999999999999.999999999", "o": False, "s": "", "y": ""},
    {"i": 2**63 - 1, "f": 1.7976931348623157e308, "n": "0.000000001", "s": 'a\nb\t"c" \u2028 🙂', "y": "AAH/"},
    {"i": 0, "f": "NaN", "d": "0001-01-01", "dt": "0001-01-01T00:00:00", "ts": "0001-01-01T00:00:00Z"},
    {"i": 1, "f": "-Infinity", "d": "1582-10-10", "dt": "1582-10-10T12:00:00.5", "ts": "1582-10-10T00:00:00.000001Z"},
    {"i": 2, "d": "9999-12-31", "dt": "9999-12-31T23:59:59.999999", "ts": "9999-12-31T23:59:59.999999Z"},
    {"i": 3, "l": [1, 2, 3], "r": [{"x": "1.5", "y": ["1969-12-31T23:59:59.999999Z"]}, {}]},
    {"i": 4, "ts": "2024-03-31T02:30:00+01:00", "l": [], "r": []},
]


async def test_the_edges_of_every_type_survive_parquet(batches: Batches) -> None:
    files = await batches.put_all({"in/a.json": lines(EDGES[:4]), "in/b.json": lines(EDGES[4:])})
    prepared = await batches.prepare(files, EXACT)
    assert prepared.format == "PARQUET"
    assert repr(await batches.loaded(prepared)) == repr(await batches.direct(files, EXACT))


async def test_types_that_only_text_carries_survive_json(batches: Batches) -> None:
    """The types' edges through the whole pipeline; values are searched in the readers' own tests."""
    rows: list[Any] = [
        *({key: value for key, value in row.items() if key != "r"} for row in EDGES),
        {"b": "12345678901234567890.123456789012345678", "t": "23:59:59.999999", "v": "-1-2 -3 -4:5:6.000007"},
        {"j": {"a": [1, None, "x", {"b": 1e-7}], "ü": "\u0000"}, "lr": [{"y": "0.000000000000000001"}, {"x": "-inf"}]},
        {"r": {"z": [{"q": [], "w": ["AA=="]}]}, "rt": {"start": None, "end": "2024-01-01T00:00:00.000001Z"}},
        {"j": "text", "g": "POINT(1 2)", "rd": {"start": "0001-01-01", "end": "9999-12-31"}, "lt": ["00:00:00"]},
    ]
    files = await batches.put_all({"in/a.json": lines(rows), "in/b.json": lines(rows[:3])})
    prepared = await batches.prepare(files, EVERYTHING)
    assert prepared.format == "NEWLINE_DELIMITED_JSON"
    assert repr(await batches.loaded(prepared)) == repr(await batches.direct(files, EVERYTHING))


FLAT = schema("id INT64", "name STRING", "amount NUMERIC", "at TIMESTAMP", "day DATE")


def _rows(part: int) -> list[dict[str, Any]]:
    return [
        {
            "id": part * 100 + n,
            "name": None if n % 7 == 0 else f"näme {n}",
            "amount": f"{n}.{n:02d}",
            "at": f"2024-01-01T{n % 24:02d}:00:00.00000{n % 10}Z",
            "day": f"2024-02-{n % 28 + 1:02d}",
        }
        for n in range(60)
    ]


def _csv(part: int) -> bytes:
    out = io.StringIO()
    writer = csv.writer(out, quoting=csv.QUOTE_MINIMAL)
    writer.writerow([item.name for item in FLAT])
    for row in _rows(part):
        writer.writerow([row[item.name] for item in FLAT])
    return out.getvalue().encode()


def _table(part: int) -> pa.Table:
    import datetime as dt
    from decimal import Decimal

    rows = [
        row
        | {
            "amount": Decimal(row["amount"]),
            "at": dt.datetime.fromisoformat(row["at"]),
            "day": dt.date.fromisoformat(row["day"]),
        }
        for row in _rows(part)
    ]
    kinds = {"id": pa.int64(), "name": pa.string(), "amount": pa.decimal128(20, 2)}
    kinds |= {"at": pa.timestamp("us", "UTC"), "day": pa.date32()}
    return pa.Table.from_pylist(rows, schema=pa.schema(list(kinds.items())))


def _avro(part: int) -> bytes:
    kinds: dict[str, Any] = {
        "id": "long",
        "name": "string",
        "amount": {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 2},
        "at": {"type": "long", "logicalType": "timestamp-micros"},
        "day": {"type": "int", "logicalType": "date"},
    }
    fields = [{"name": name, "type": ["null", kind]} for name, kind in kinds.items()]
    return avro(fields, _table(part).to_pylist(), "deflate")


FORMATS: dict[str, tuple[Any, dict[str, Any]]] = {
    "NEWLINE_DELIMITED_JSON": (lambda part: lines(_rows(part)), {}),
    "CSV": (_csv, {"skipLeadingRows": 1}),
    "AVRO": (_avro, {"useAvroLogicalTypes": True}),
    "PARQUET": (lambda part: parquet(_table(part)), {}),
    "ORC": (lambda part: orc(_table(part)), {}),
}


def expected(parts: int) -> list[tuple[Any, ...]]:
    """The same rows, by Python's own reading of what was written."""
    found = [tuple(row[item.name] for item in FLAT) for part in range(parts) for row in _table(part).to_pylist()]
    return sorted(found, key=lambda row: row[0])


@pytest.mark.parametrize("kind", FORMATS)
async def test_every_format_arrives_as_it_was_written_and_as_a_direct_load_has_it(batches: Batches, kind: str) -> None:
    make, options = FORMATS[kind]
    load = {"sourceFormat": kind, **options}
    files = await batches.put_all({f"in/{part}": make(part) for part in range(3)})
    prepared = await batches.prepare(files, FLAT, load)
    rows = await batches.loaded(prepared)
    assert rows == await batches.direct(files, FLAT, load)
    plain = [tuple(value.normalize() if hasattr(value, "normalize") else value for value in row) for row in rows]
    assert plain == [
        tuple(value.normalize() if hasattr(value, "normalize") else value for value in row) for row in expected(3)
    ]
    assert prepared.rows_per_file == {0: 60, 1: 60, 2: 60}


async def test_parquet_timestamps_that_say_no_zone_are_what_the_table_says(batches: Batches) -> None:
    """BigQuery's own exports say no zone, for TIMESTAMP as for DATETIME columns."""
    columns = schema("id INT64", "at TIMESTAMP", "civil DATETIME")
    noon = datetime(2024, 1, 2, 12, 0, 0, 123456)  # noqa: DTZ001
    table = pa.table({"id": [1], "at": pa.array([noon]), "civil": pa.array([noon])})
    files = [await batches.put("in/a.parquet", parquet(table))]
    load = {"sourceFormat": "PARQUET"}
    prepared = await batches.prepare(files, columns, load)
    rows = await batches.loaded(prepared)
    assert rows == [(1, noon.replace(tzinfo=UTC), noon)]
    assert rows == await batches.direct(files, columns, load)


async def test_columns_in_the_path_become_columns_of_the_rows(batches: Batches) -> None:
    columns = schema("id INT64", "day DATE", "country STRING")
    load = {
        **NDJSON,
        "hivePartitioningOptions": {"mode": "AUTO", "sourceUriPrefix": "gs://bucket/in"},
    }
    contents = {f"in/day=2024-01-0{n}/country=N{n}/f.json": lines([{"id": n}, {"id": n + 10}]) for n in (1, 2)}
    files = await batches.put_all(contents)
    prepared = await batches.prepare(files, columns, load)
    assert json.dumps(await batches.loaded(prepared), default=str) == json.dumps(
        [(n, f"2024-01-0{n % 10}", f"N{n % 10}") for n in (1, 2, 11, 12)], default=str
    )


async def test_csv_columns_are_detected_as_a_direct_load_detects_them(batches: Batches) -> None:
    load = {"sourceFormat": "CSV", "autodetect": True}
    files = await batches.put_all({"in/a.csv": b"id|when\n1|2024-01-01\n2|2024-01-02\n"})
    prepared = await batches.prepare(files, (), load)
    assert [(item.name, item.type.rest) for item in prepared.schema] == [("id", "INTEGER"), ("when", "DATE")]
    assert await batches.loaded(prepared) == await batches.load([files[0].ref.url], None, load)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", FORMATS)
async def test_shaped_rows_are_those_that_plain_python_makes_of_the_files(batches: Batches, kind: str) -> None:
    """Criteria, a transformation, one row per key and a split, in the same pass as the reading and the quarantine."""
    make, options = FORMATS[kind]
    files = await batches.put_all({f"in/{part}": make(part % 2) for part in range(3)} | {"in/3": b"\0 broken\n" * 3})
    shaping = Shaping(
        transform={"name": "UPPER(t.name)", "amount": "t.amount * 2"},
        criteria="MOD(t.id, 5) != 0",
        unique_columns=("day",),
        order_by=("id DESC",),
        branches=(Branch("amount > 50"), Branch("name IS NULL")),
    )
    prepared = await batches.prepare(files, FLAT, {"sourceFormat": kind, **options}, shaping=shaping)
    kept: dict[Any, dict[str, Any]] = {}
    read = [row for part in range(3) for row in _table(part % 2).to_pylist()]
    chosen = [row for row in read if row["id"] % 5]
    for row in chosen:
        if row["day"] not in kept or row["id"] > kept[row["day"]]["id"]:
            kept[row["day"]] = row
    wanted: dict[int, list[Any]] = {-1: [], 0: [], 1: []}
    for row in kept.values():
        shaped = row | {"name": row["name"] and row["name"].upper(), "amount": row["amount"] * 2}
        target = 0 if shaped["amount"] > 50 else 1 if shaped["name"] is None else -1
        wanted[target].append(tuple(shaped[item.name] for item in FLAT))
    for branch, rows in wanted.items():
        assert await batches.loaded(prepared, branch) == sorted(rows)
        assert sum(output.rows for output in prepared.outputs if output.branch == branch) == len(rows)
    assert prepared.rows_left_out == {"criteria": len(read) - len(chosen), "duplicate": len(chosen) - len(kept)}
    assert [(bad.index, bad.loaded) for bad in prepared.bad] == [(3, False)]


async def test_a_split_of_rows_that_only_text_carries_is_written_in_one_pass(batches: Batches) -> None:
    columns = schema("id INT64 REQUIRED", "j JSON", "t TIME")
    rows = [{"id": n, "j": {"n": n}, "t": f"00:00:{n:02d}"} for n in range(10)]
    files = [await batches.put("in/a.json", lines(rows))]
    shaping = Shaping(branches=(Branch("id < 3"), Branch("id > 100")), unmatched=Unmatched.DROP)
    prepared = await batches.prepare(files, columns, shaping=shaping)
    assert [(output.branch, output.rows) for output in prepared.outputs] == [(0, 3)]
    assert prepared.rows_left_out == {"unmatched": 7}
    assert await batches.loaded(prepared, 0) == (await batches.direct(files, columns))[:3]


async def test_a_required_column_that_a_transformation_empties_fails_the_batch_by_name(batches: Batches) -> None:
    columns = schema("id INT64 REQUIRED", "name STRING")
    files = [await batches.put("in/a.json", lines([{"id": 1}, {"id": 2}]))]
    with pytest.raises(BadInput, match="id"):
        await batches.prepare(files, columns, shaping=Shaping(transform={"id": "NULLIF(t.id, 2)"}))
    assert await batches.names("staging/") == []


async def test_a_csv_column_has_the_type_of_all_its_values(batches: Batches) -> None:
    rows = "".join(f"{n},{n},\n" for n in range(600))
    contents = {"in/a.csv": b"id,price,day\n" + rows.encode(), "in/b.csv": b"id,price,day\n1,0.5,2024-01-01\n"}
    files = await batches.put_all(contents)
    prepared = await batches.prepare(files, (), {"sourceFormat": "CSV", "autodetect": True})
    assert [(item.name, item.type.rest) for item in prepared.schema] == [
        ("id", "INTEGER"),
        ("price", "FLOAT"),
        ("day", "DATE"),
    ]
    assert prepared.rows_per_file == {0: 600, 1: 1}
    assert prepared.bad == ()
