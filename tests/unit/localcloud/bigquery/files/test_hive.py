import datetime as dt

import pytest
from tests.support.loads import Loads, schema

from ingestd.formats.errors import BigQueryError
from ingestd.model.schema import Type

JSON = {"sourceFormat": "NEWLINE_DELIMITED_JSON"}
ONE = schema("v INT64")


def hive(mode: str, prefix: str = "gs://b/t") -> dict[str, object]:
    return {"hivePartitioningOptions": {"mode": mode, "sourceUriPrefix": prefix}}


@pytest.fixture
def partitioned(loads: Loads) -> Loads:
    loads.put("gs://b/t/dt=2024-01-01/country=NL/a.json", [{"v": 1}])
    loads.put("gs://b/t/dt=2024-01-02/country=B%20E/a.json", [{"v": 2}])
    loads.put("gs://b/t/dt=__HIVE_DEFAULT_PARTITION__/country=FR/a.json", [{"v": 3}])
    return loads


def test_keys_in_the_path_become_typed_columns(partitioned: Loads) -> None:
    outcome = partitioned.load("gs://b/t/*", ONE, **JSON, **hive("AUTO"))
    assert [(item.name, item.type) for item in outcome.schema[1:]] == [("dt", Type.DATE), ("country", Type.STRING)]
    assert partitioned.rows("v") == [(1, dt.date(2024, 1, 1), "NL"), (2, dt.date(2024, 1, 2), "B E"), (3, None, "FR")]


def test_strings_mode_keeps_the_text(partitioned: Loads) -> None:
    partitioned.load("gs://b/t/*", ONE, **JSON, **hive("STRINGS"))
    assert partitioned.rows("v")[0] == (1, "2024-01-01", "NL")


def test_custom_mode_names_the_types(partitioned: Loads) -> None:
    outcome = partitioned.load("gs://b/t/*", ONE, **JSON, **hive("CUSTOM", "gs://b/t/{dt:TIMESTAMP}/{country:STRING}"))
    assert outcome.schema[1].type is Type.TIMESTAMP
    assert partitioned.rows("v")[0][1] == dt.datetime(2024, 1, 1, tzinfo=dt.UTC)


def test_a_given_schema_decides_the_type_of_a_key(partitioned: Loads) -> None:
    outcome = partitioned.load("gs://b/t/*", schema("v INT64", "dt STRING"), **JSON, **hive("AUTO"))
    assert [(item.name, item.type) for item in outcome.schema] == [
        ("v", Type.INT64),
        ("dt", Type.STRING),
        ("country", Type.STRING),
    ]


def test_files_must_agree_on_their_keys(partitioned: Loads) -> None:
    partitioned.put("gs://b/t/dt=2024-01-03/a.json", [{"v": 4}])
    with pytest.raises(BigQueryError, match="Partition keys should be invariant"):
        partitioned.load("gs://b/t/*", ONE, **JSON, **hive("AUTO"))
