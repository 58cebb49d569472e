import gzip
from typing import Any

import pytest
from tests.support.loads import Loads, schema

from ingestd.formats.errors import BigQueryError
from ingestd.localcloud.bigquery.files.external import attach_external


def test_csv_files_become_a_table_with_hidden_file_names(loads: Loads) -> None:
    loads.put("gs://b/1.csv", "h\n1\n")
    loads.put("gs://b/2.csv.gz", gzip.compress(b"h\n2\n"))
    config = {
        "sourceFormat": "CSV",
        "sourceUris": ["gs://b/*"],
        "csvOptions": {"skipLeadingRows": "1", "quote": '"'},
        "schema": {"fields": [{"name": "v", "type": "INTEGER"}]},
        "compression": "GZIP",
    }
    table = attach_external(loads.conn, loads.objects, "ext", config)
    assert [item.name for item in table.schema] == ["v"]
    found = loads.conn.execute(f"SELECT v, _FILE_NAME FROM {table.relation} ORDER BY v").fetchall()
    assert found == [(1, "gs://b/1.csv"), (2, "gs://b/2.csv.gz")]


def test_json_is_detected_and_partitioned(loads: Loads) -> None:
    loads.put("gs://b/t/day=5/1.json", [{"a": "x"}])
    config = {
        "sourceFormat": "NEWLINE_DELIMITED_JSON",
        "sourceUris": ["gs://b/t/*"],
        "autodetect": True,
        "hivePartitioningOptions": {"mode": "AUTO", "sourceUriPrefix": "gs://b/t"},
    }
    table = attach_external(loads.conn, loads.objects, "ext", config)
    assert [(item.name, item.type.value) for item in table.schema] == [("a", "STRING"), ("day", "INT64")]
    assert loads.conn.execute(f"SELECT * FROM {table.relation}").fetchall() == [("x", 5, "gs://b/t/day=5/1.json")]


def test_bad_records_are_tolerated_up_to_the_limit(loads: Loads) -> None:
    loads.put("gs://b/1.json", '{"v": 1}\n{"v": "x", "w": 1}')
    config: dict[str, Any] = {
        "sourceFormat": "NEWLINE_DELIMITED_JSON",
        "sourceUris": ["gs://b/1.json"],
        "ignoreUnknownValues": True,
    }
    table = attach_external(loads.conn, loads.objects, "ext", config | {"maxBadRecords": 1}, schema("v INT64"))
    assert (table.rows, len(table.warnings)) == (1, 1)
    with pytest.raises(BigQueryError):
        attach_external(loads.conn, loads.objects, "ext", config, schema("v INT64"))


@pytest.mark.parametrize(
    ("config", "status"),
    [
        ({"sourceFormat": "GOOGLE_SHEETS"}, 501),
        ({"sourceFormat": "CSV", "csvOptions": {"nope": 1}}, 400),
        ({"sourceFormat": "CSV", "nope": 1}, 400),
        ({}, 400),
    ],
)
def test_what_cannot_be_honoured_is_refused(loads: Loads, config: dict[str, Any], status: int) -> None:
    with pytest.raises(BigQueryError) as refused:
        attach_external(loads.conn, loads.objects, "ext", config)
    assert refused.value.status == status
